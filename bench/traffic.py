#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that the eager level's planner moves per step, over the least any schedule can move.

    ./dev bench traffic                         generated steps of the watched nets
    ./dev bench traffic --deep                  and two deep ResNets (a minute more)
    ./dev bench traffic --sequences FILE...     recorded steps, as JSON access sequences
    ... --percent 60 33 20 --json FILE
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path

MIB = 1 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build folder, given by ./dev bench")
    parser.add_argument("--percent", nargs="+", type=int, default=[60, 33, 20], help="budgets, %% of the peak")
    parser.add_argument("--sequences", nargs="+", default=[], help="files to measure instead of generated nets")
    parser.add_argument("--deep", action="store_true", help="add two deep ResNets")
    parser.add_argument("--json", help="write the lines, with date and machine, to this file")
    options = parser.parse_args()
    command = [str(Path(options.build) / "bench/bench_swap_traffic")]
    if options.deep:
        command.append("--deep")
    for path in options.sequences:
        command += ["--file", path]
    command += [str(percent) for percent in options.percent]
    rows = []
    print(f"{'net':28}{'accesses':>9}{'peak':>8}{'budget':>8}{'out':>8}{'in':>8}{'least':>8}"
          f"{'ratio':>8}{'greedy':>8}{'plan':>9}{'bound':>9}   MiB, ms")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            rows.append(row)
            print_row(row)
    if process.returncode != 0:
        return process.returncode
    if options.json:
        result = {"date": datetime.date.today().isoformat(), "command": " ".join(sys.argv[1:]),
                  "machine": platform.machine(), "rows": rows}
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def print_row(row):
    name = Path(row["net"]).stem if row["net"].endswith(".json") else row["net"]
    text = f"{name:28}{row['accesses']:9}{row['peak_bytes'] / MIB:8.0f}{row['percent']:7}%"
    if not row["feasible"]:
        least = 100 * row["minimum_budget_bytes"] / row["peak_bytes"]
        print(f"{text}   infeasible: the largest operator needs {least:.1f} %", flush=True)
        return
    least = row["moved_lower_bound_bytes"]
    moved = row["out_bytes"] + row["in_bytes"]
    ratio = moved / least if least else 1.0
    greedy = row["greedy_moved_bytes"] / least if least else 1.0
    print(f"{text}{row['out_bytes'] / MIB:8.1f}{row['in_bytes'] / MIB:8.1f}{least / MIB:8.1f}"
          f"{ratio:8.4f}{greedy:8.4f}{row['plan_ms']:9.1f}{row['bound_ms']:9.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
