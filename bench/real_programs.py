#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks from PyPI at their own code: stock's peak, the least budget that works, time at 50 and 25 %.

The programs are those of tests/python/real. Everything is compared bit for bit before a number is
printed. The least budget is found upwards from what the largest operator needs, in steps of 5 %.
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
parser.add_argument("--json")
parser.add_argument("--only", default="", help="programs whose name matches this regular expression")
parser.add_argument("--seconds", type=float, default=1e9, help="begin no further program after this time")
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()
sys.path[:0] = [str(Path(options.build) / "python"), str(ROOT / "tests/python/real"), str(ROOT / "tests/python")]

import torch  # noqa: E402
from equality import first_difference, frozen, run_stock  # noqa: E402
from programs import PROGRAMS  # noqa: E402

import plimsoll  # noqa: E402

STEPS = 3


def inside(make, steps, budget):
    """Returns (frozen results, report, seconds of the last step)."""
    torch.manual_seed(1)
    program = make()
    with plimsoll.session(budget) as session:
        results, spent = [], 0.0
        for _ in range(steps):
            with session.steps_by_optimizer() if program.drives_itself else session.step():
                begin = time.perf_counter()
                result = program.step()
                spent = time.perf_counter() - begin
            results.append(frozen(result))
        report = session.report()
    return [results, frozen(program.state())], report, spent


def stock_seconds(make, steps):
    torch.manual_seed(1)
    program = make()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        program.step()
        times.append(time.perf_counter() - begin)
    return times[-1]


def least(make, steps, expected, peak, lower_bound):
    budget = max(lower_bound, 4096)
    while budget < 1.5 * peak:
        gc.collect()
        try:
            actual, report, _ = inside(make, steps, budget)
            return budget, first_difference(expected, actual) == "", report
        except torch.OutOfMemoryError:
            budget += max(budget // 20, 64)
    return None, False, None


def row_of(name):
    make = PROGRAMS[name]
    steps = 1 if make().drives_itself else STEPS
    expected, peak = run_stock(make, steps)
    row = {"program": name, "stock_peak_bytes": peak, "identical": True}
    seconds = stock_seconds(make, steps)
    lower_bound = 0
    for share in (50, 25):
        gc.collect()
        try:
            actual, report, spent = inside(make, steps, peak * share // 100)
        except torch.OutOfMemoryError:
            row[f"time_ratio_{share}"] = None
            continue
        lower_bound = report.lower_bound_bytes
        row["identical"] &= first_difference(expected, actual) == ""
        row[f"time_ratio_{share}"] = spent / seconds
    if lower_bound == 0:
        _, report, _ = inside(make, steps, 2 * peak)
        lower_bound = report.lower_bound_bytes
    budget, is_identical, report = least(make, steps, expected, peak, lower_bound)
    row["identical"] &= is_identical
    row.update(least_budget_bytes=budget, lower_bound_bytes=report.lower_bound_bytes if report else lower_bound,
               pinned_by=report.pinned_by if report else "")
    row["share_ratio"] = budget / peak if budget else None
    row["over_lower_bound_ratio"] = budget / row["lower_bound_bytes"] if budget else None
    return row


def shown(value):
    return "-" if value is None else f"{value:.2f}"


torch.set_num_threads(options.threads)
begin, rows, failures = time.perf_counter(), [], []
print(f"{'program':44} {'stock peak':>10} {'least':>10} {'share':>6} {'/bound':>6} {'50 %':>6} {'25 %':>6}  same")
for name in PROGRAMS:
    if not re.search(options.only, name) or time.perf_counter() - begin > options.seconds:
        continue
    try:
        row = row_of(name)
    except Exception as error:  # a program that cannot be run at all is a row of the table too
        failures.append({"program": name, "error": f"{type(error).__name__}: {str(error)[:200]}"})
        print(f"{name:44} {failures[-1]['error'][:90]}", flush=True)
        continue
    rows.append(row)
    print(f"{name:44} {plimsoll.format_size(row['stock_peak_bytes']):>10} "
          f"{plimsoll.format_size(row['least_budget_bytes'] or 1):>10} {shown(row['share_ratio']):>6} "
          f"{shown(row['over_lower_bound_ratio']):>6} {shown(row['time_ratio_50']):>6} "
          f"{shown(row['time_ratio_25']):>6}  {'yes' if row['identical'] else 'NO'}", flush=True)
shares = [row["share_ratio"] for row in rows if row["share_ratio"]]
if shares:
    print(f"{len(rows)} programs, {sum(r['identical'] for r in rows)} identical, median share {statistics.median(shares):.2f}")
if options.json:
    Path(options.json).write_text(json.dumps({
        "date": datetime.date.today().isoformat(), "command": "./dev bench real_programs", "torch": torch.__version__,
        "threads": options.threads, "load": os.getloadavg()[0], "rows": rows, "failures": failures}, indent=1) + "\n",
        encoding="utf-8")
sys.exit(0 if all(row["identical"] for row in rows) else 1)
