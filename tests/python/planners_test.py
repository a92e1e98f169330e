# SPDX-License-Identifier: Apache-2.0
"""explain, schedule and layout: the command line's planners as functions."""

import csv
from pathlib import Path

import pytest
import torch

import plimsoll

GRAPHS = Path(__file__).resolve().parents[1] / "data/graphs"


def test_schedule_returns_an_order_its_peak_and_a_bound():
    path = GRAPHS / "inference/randwire1-wsum-32.txt"
    result = plimsoll.schedule(path, time_limit=60)
    assert sorted(result["order"]) == list(range(result["ops"]))
    assert 0 < result["lower_bound_bytes"] <= result["peak_bytes"] <= result["program_peak_bytes"]
    assert result["proved"] == (result["lower_bound_bytes"] == result["peak_bytes"])
    greedy = plimsoll.schedule(str(path), algorithm="greedy")
    assert greedy["peak_bytes"] >= result["lower_bound_bytes"]


def test_schedule_says_whether_a_budget_is_met():
    path = GRAPHS / "inference/randwire1-wsum-32.txt"
    peak = plimsoll.schedule(path, time_limit=60)["peak_bytes"]
    assert plimsoll.schedule(path, budget=peak, time_limit=60)["peak_bytes"] <= peak
    with pytest.raises(plimsoll.BudgetExceededError) as caught:
        plimsoll.schedule(path, budget=64, time_limit=60)
    assert caught.value.budget_bytes == 64
    assert caught.value.minimum_budget_bytes == peak and caught.value.pinned_by


def buffers(folder, rows):
    path = folder / "buffers.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "lower", "upper", "size"), *rows])
    return path


def test_layout_returns_addresses_that_do_not_overlap(tmp_path):
    rows = [("a", 0, 2, 640), ("b", 1, 3, 640), ("c", 2, 4, 640), ("d", 0, 4, 64)]
    out = tmp_path / "addresses.csv"
    result = plimsoll.layout(buffers(tmp_path, rows), out=out, time_limit=10)
    assert result["status"] == "optimal" and result["buffers"] == 4
    assert result["load_bytes"] == result["arena_bytes"] == 2 * 640 + 64
    placed = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert len(placed) == 4
    spans = {row["id"]: (int(row["offset"]), int(row["offset"]) + int(row["size"])) for row in placed}
    for first, lower, upper, _ in rows:
        for second, other_lower, other_upper, _ in rows:
            if first < second and lower < other_upper and other_lower < upper:
                assert spans[first][1] <= spans[second][0] or spans[second][1] <= spans[first][0]


def test_layout_says_what_a_capacity_cannot_hold(tmp_path):
    path = buffers(tmp_path, [("a", 0, 2, 640), ("b", 1, 3, 640)])
    with pytest.raises(plimsoll.BudgetExceededError) as caught:
        plimsoll.layout(path, capacity=1000)
    assert caught.value.budget_bytes == 1000 and caught.value.minimum_budget_bytes == 1280


def test_explain_tells_of_what_was_recorded(tmp_path):
    plimsoll.install_allocator()
    plimsoll.record_memory_history()
    plimsoll.reset_allocator_statistics()
    for _ in range(3):
        torch.ones(1 << 16).mul(2).sum()
    path, page = tmp_path / "run.pickle", tmp_path / "run.html"
    plimsoll.save_memory_snapshot(path)
    plimsoll.record_memory_history(0)
    result = plimsoll.explain(path, html=page)
    assert result["peak_allocated_bytes"] >= 2 * (4 << 16)
    assert result["planned_arena_bytes"] >= result["load_bytes"] > 0
    assert "<html" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("planner", [plimsoll.explain, plimsoll.schedule, plimsoll.layout])
def test_what_is_no_such_file_is_refused_by_a_value_error(planner, tmp_path):
    with pytest.raises(ValueError, match="missing"):
        planner(tmp_path / "missing.txt")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("neither graph nor snapshot nor buffers\n", encoding="utf-8")
    with pytest.raises(plimsoll.InvalidArgumentError, match="wrong.csv"):
        planner(wrong)


@pytest.mark.parametrize("call, name", [(lambda p: plimsoll.layout(p, capacity=-1), "capacity"),
                                        (lambda p: plimsoll.schedule(p, budget="4 parsecs"), "budget"),
                                        (lambda p: plimsoll.schedule(p, algorithm="oracle"), "algorithm")])
def test_wrong_arguments_are_named(call, name, tmp_path):
    path = buffers(tmp_path, [("a", 0, 2, 640)])
    with pytest.raises(ValueError, match=name):
        call(path)
