#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks from PyPI at their own code: stock's peak, the least budget that works, time at 50 and 25 %.

The programs are those of tests/python/real. Everything is compared bit for bit before a number is
kept. The least budget is sought down to what the largest operator needs (operators that then run in
chunks need less, so this is a sequence), and from there upwards in steps of 3 % until it works.
Sizes are exact on a busy machine; times want a quiet one, and can be taken later and in parts:

    ./dev bench real_programs --sizes --json FILE
    ./dev bench real_programs --times --json FILE --seconds 170     again until none is missing
"""

import argparse
import datetime
import gc
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--json", help="what is there already is kept: only what is missing is measured")
parser.add_argument("--only", default="", help="programs whose name matches this regular expression")
parser.add_argument("--sizes", action="store_true", help="no times")
parser.add_argument("--times", action="store_true", help="no sizes")
parser.add_argument("--seconds", type=float, default=1e9, help="begin no further program after this time")
parser.add_argument("--pairs", type=int, default=10, help="steps timed of stock and session, in turns")
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()
if options.sizes:  # threads that spin would take the cores that others work on
    os.environ.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0")
sys.path[:0] = [str(Path(options.build) / "python"), str(ROOT / "tests/python/real"), str(ROOT / "tests/python")]

import torch  # noqa: E402
from equality import first_difference, frozen, run_stock  # noqa: E402
from programs import PROGRAMS  # noqa: E402

import plimsoll  # noqa: E402

STEPS = 3
SHARES = (50, 25)


def extent_of(session, program):
    return session.steps_by_optimizer() if program.drives_itself else session.step()


def inside(make, steps, budget):
    """Returns (frozen results, report)."""
    gc.collect()
    torch.manual_seed(1)
    program = make()
    with plimsoll.session(budget) as session:
        results = []
        for _ in range(steps):
            with extent_of(session, program):
                result = program.step()
            results.append(frozen(result))
        report = session.report()
    return [results, frozen(program.state())], report


def least(make, steps, expected, peak):
    """Returns (least budget, whether all runs on the way were as stock, report at the least budget)."""
    budget = 2 * peak
    actual, best = inside(make, steps, budget)
    is_identical = first_difference(expected, actual) == ""
    while best.lower_bound_bytes < budget:
        bound = candidate = max(best.lower_bound_bytes, 4096)
        report = None
        while candidate < budget and report is None:
            try:
                actual, report = inside(make, steps, candidate)
            except torch.OutOfMemoryError:
                candidate += max(bound * 3 // 100, 64)
        if report is None:
            break
        is_identical &= first_difference(expected, actual) == ""
        is_at_bound = candidate == bound
        budget, best = candidate, report
        if not is_at_bound:
            break
    return budget, is_identical, best


def sizes_of(name):
    make = PROGRAMS[name]
    steps = 1 if make().drives_itself else STEPS
    expected, peak = run_stock(make, steps)
    row = {"program": name, "stock_peak_bytes": peak}
    is_identical = True
    for share in SHARES:
        try:
            actual, _ = inside(make, steps, peak * share // 100)
        except torch.OutOfMemoryError:
            row[f"time_ratio_{share}"] = None  # does not fit: no time will be taken
            continue
        is_identical &= first_difference(expected, actual) == ""
    budget, is_least_identical, report = least(make, steps, expected, peak)
    row.update(identical=is_identical and is_least_identical, least_budget_bytes=budget,
               lower_bound_bytes=report.lower_bound_bytes, pinned_by=report.pinned_by,
               share_ratio=budget / peak, over_lower_bound_ratio=budget / report.lower_bound_bytes)
    return row


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def time_ratios(make, budget):
    """Two programs from one seed, one stock and one in a session, a step each in turns."""
    gc.collect()
    torch.manual_seed(1)
    stock = make()
    torch.manual_seed(1)
    program = make()
    # A trainer's own loop is three steps, of which the session sees the first as new.
    warm = 1 if program.drives_itself else 3
    ratios = []
    with plimsoll.session(budget) as session:
        for i in range(warm + options.pairs):
            with extent_of(session, program):
                spent = seconds(program.step)
            with session.pause():
                stock_spent = seconds(stock.step)
            if i >= warm:
                ratios.append(spent / stock_spent)
    return ratios


def add_times(row):
    for share in SHARES:
        key = f"time_ratio_{share}"
        if key not in row:
            ratios = time_ratios(PROGRAMS[row["program"]], row["stock_peak_bytes"] * share // 100)
            row.update({key: statistics.median(ratios), f"{key}_min": min(ratios), f"{key}_max": max(ratios),
                        f"{key}_pairs": len(ratios)})


def shown(value):
    return "-" if value is None else f"{value:.2f}"


def show(row):
    print(f"{row['program']:44} {plimsoll.format_size(row['stock_peak_bytes']):>10} "
          f"{plimsoll.format_size(row['least_budget_bytes']):>10} {shown(row['share_ratio']):>6} "
          f"{shown(row['over_lower_bound_ratio']):>6} {shown(row.get('time_ratio_50')):>6} "
          f"{shown(row.get('time_ratio_25')):>6}  {'yes' if row['identical'] else 'NO'}", flush=True)


def save(rows, failures):
    if not options.json:
        return
    ordered = [rows[name] for name in PROGRAMS if name in rows]
    Path(options.json).write_text(json.dumps({
        "date": datetime.date.today().isoformat(), "command": "./dev bench real_programs", "torch": torch.__version__,
        "threads": options.threads, "load": os.getloadavg()[0], "rows": ordered, "failures": failures}, indent=1) + "\n",
        encoding="utf-8")


torch.set_num_threads(options.threads)
begin, rows, failures = time.perf_counter(), {}, []
if options.json and Path(options.json).exists():
    rows = {row["program"]: row for row in json.loads(Path(options.json).read_text(encoding="utf-8"))["rows"]}
print(f"{'program':44} {'stock peak':>10} {'least':>10} {'share':>6} {'/bound':>6} {'50 %':>6} {'25 %':>6}  same")
for name in PROGRAMS:
    if not re.search(options.only, name) or time.perf_counter() - begin > options.seconds:
        continue
    try:
        if name not in rows and not options.times:
            rows[name] = sizes_of(name)
        if name in rows and not options.sizes:
            add_times(rows[name])
    except Exception as error:  # a program that cannot be run at all is a row of the table too
        failures.append({"program": name, "error": f"{type(error).__name__}: {str(error)[:300]}"})
        print(f"{name:44} {failures[-1]['error'][:120]}", flush=True)
        continue
    if name in rows:
        show(rows[name])
    save(rows, failures)
shares = [row["share_ratio"] for row in rows.values()]
if shares:
    print(f"{len(rows)} programs, {sum(r['identical'] for r in rows.values())} identical, median share "
          f"{statistics.median(shares):.3f}, most over the largest operator's bytes "
          f"{max(r['over_lower_bound_ratio'] for r in rows.values()):.2f}")
save(rows, failures)
sys.exit(0 if not failures and all(row["identical"] for row in rows.values()) else 1)
