# SPDX-License-Identifier: Apache-2.0
"""compare: a user's own step, stock and inside budgets."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import plimsoll
from equality import first_difference, frozen, model_state
from plimsoll import _state


def training():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1))
                            for _ in range(6)], nn.Linear(128, 5))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    x, y = torch.randn(128, 128), torch.randint(0, 5, (128,))
    losses, count = [], 0

    def step():
        nonlocal count
        count += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * (1 + 0.1 * count)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        return loss

    return step, model, optimizer, losses


def test_budgets_are_compared_and_the_users_state_is_left_alone():
    step, model, optimizer, losses = training()
    step()
    before = frozen([model_state(model, optimizer), list(losses)])
    result = plimsoll.compare(step, budgets=["none", "60%", "35%", "1KiB"], steps=3, repeats=1)
    assert first_difference(before, frozen([model_state(model, optimizer), list(losses)])) == ""
    assert result.identical
    none, most, third, too_small = result.rows
    assert none.fits and most.fits and third.fits and not too_small.fits
    assert too_small.minimum_budget_bytes > 1024 and too_small.pinned_by
    for row in (most, third):
        assert row.peak_bytes <= row.budget_bytes < result.stock_peak_bytes
        assert row.time_ratio_min <= row.time_ratio <= row.time_ratio_max
    text = str(result)
    assert "does not fit" in text and text.count("yes") == 3
    assert result.as_dict()["rows"][1]["identical"] is True


def test_the_least_budget_is_found():
    step, *_ = training()
    result = plimsoll.compare(step, budgets=["min"], steps=2, repeats=1)
    row = result.rows[0]
    assert row.fits and row.identical
    assert row.lower_bound_bytes <= row.budget_bytes < result.stock_peak_bytes / 2


def test_the_stock_peak_is_that_of_the_whole_program():
    step, model, optimizer, _ = training()
    result = plimsoll.compare(step, budgets=["none"], steps=2, repeats=1)
    parameters = sum(p.numel() * 4 for p in model.parameters())
    # Parameters, gradients and two moments, and on top of them a step's activations.
    assert result.stock_peak_bytes > 4 * parameters
    row = result.rows[0]
    assert abs(row.peak_bytes - result.stock_peak_bytes) < 0.1 * result.stock_peak_bytes


def test_a_step_that_does_not_repeat_is_refused():
    batches = iter(torch.randn(100, 4, 8))
    weight = nn.Parameter(torch.ones(8))

    def step():
        return (next(batches) * weight).sum()

    with pytest.raises(ValueError, match="two stock runs"):
        plimsoll.compare(step, budgets=["1MiB"], steps=2, repeats=1)


def test_a_changed_bit_is_named():
    expected, actual = {}, {}
    _state.bits([torch.tensor([1.0, -0.0])], "weight", expected)
    _state.bits([torch.tensor([1.0, 0.0])], "weight", actual)
    assert _state.first_difference(expected, actual) == "weight[0] differs"


@pytest.mark.parametrize("arguments", [{"steps": 0}, {"repeats": 0}, {"budgets": ["4 parsecs"]}])
def test_wrong_arguments_are_refused(arguments):
    step, *_ = training()
    with pytest.raises(ValueError):
        plimsoll.compare(step, **{"budgets": ["none"], "steps": 1, "repeats": 1, **arguments})
