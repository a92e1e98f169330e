#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layout of reference instances: arena, bound, time, nodes; every result checked here once more.

    ./dev bench layout [--json FILE] [--quick]

The instances are found in PLIMSOLL_REFERENCE_DATA. Seconds (wall and CPU) are those of solving,
without starting the program and reading. Baseline for MiniMalloc's set: its own times at capacity
1048576 on the same kind of machine (43.4 s CPU with its defaults, 4.6 s with the best single order
for each instance).
"""

import argparse
import bisect
import csv
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from pathlib import Path

CAPACITY = 1048576
MORE_PERCENT = (0, 1, 2, 5, 10)


def check(path, capacity):
    """Returns the top of a written layout; fails where two live buffers share a byte."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = [(int(r["lower"]), int(r["upper"]), int(r["offset"]), int(r["size"])) for r in csv.DictReader(file)]
    events = sorted([(lower, 1, k) for k, (lower, _, _, _) in enumerate(rows)]
                    + [(upper, 0, k) for k, (_, upper, _, _) in enumerate(rows)])
    live = []
    for _, begins, k in events:
        _, _, offset, size = rows[k]
        block = (offset, offset + size)
        at = bisect.bisect_left(live, block)
        if not begins:
            del live[at]
            continue
        if (at > 0 and live[at - 1][1] > offset) or (at < len(live) and live[at][0] < offset + size):
            sys.exit(f"{path}: buffer {k} overlaps another one")
        live.insert(at, block)
    top = max(offset + size for _, _, offset, size in rows)
    if capacity and top > capacity:
        sys.exit(f"{path}: top {top} is above the capacity {capacity}")
    return top


def solve(program, path, flags, capacity=0):
    with tempfile.TemporaryDirectory() as folder:
        placed = Path(folder) / "placed.csv"
        command = [program, "layout", str(path), "--json", "-", "--out", str(placed), *flags]
        if capacity:
            command += ["--capacity", str(capacity)]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        result = json.loads(run.stdout)
        if run.returncode not in (0, 1):
            sys.exit(f"{path}: {result}")
        if check(placed, capacity if run.returncode == 0 else 0) != result["arena_bytes"]:
            sys.exit(f"{path}: the layout's top is not arena_bytes")
    result["instance"] = path.stem.removesuffix(f".{CAPACITY}")
    result["capacity_bytes"] = capacity
    return result


def million(folder):
    """10^6 buffers: lengths of a power law, as in a long trace."""
    generator = random.Random(1)
    path = Path(folder) / "million.csv"
    with open(path, "w", encoding="utf-8") as file:
        file.write("id,lower,upper,size\n")
        for k in range(1_000_000):
            length = min(200_000, int(generator.paretovariate(0.9)) + 1)
            file.write(f"{k},{k},{k + length},{generator.choice((1, 2, 4, 7, 16, 64)) * 512}\n")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="MiniMalloc's set at its own capacity only")
    options = parser.parse_args()
    program = str(options.build / "bindings/cli/plimsoll")
    data = Path(os.environ.get("PLIMSOLL_REFERENCE_DATA", ""))
    if not (data / "minimalloc").is_dir():
        sys.exit("layout: PLIMSOLL_REFERENCE_DATA names no folder of reference data")
    rows = []
    print(f"{'instance':14} {'capacity':>10} {'arena':>12} {'bound':>12} {'load+%':>7} {'status':>9} "
          f"{'seconds':>8} {'cpu':>7} {'nodes':>9}  method")

    def report(result):
        rows.append(result)
        print(f"{result['instance']:14} {result['capacity_bytes'] or '-':>10} {result['arena_bytes']:12} "
              f"{result['lower_bound_bytes']:12} {100 * result['waste_ratio']:7.3f} {result['status']:>9} "
              f"{result['seconds']:8.3f} {result['cpu_seconds']:7.3f} {result['nodes']:9}  {result['method']}"
              f"{' (time limit)' if result['time_limit_reached'] else ''}", flush=True)

    challenging = sorted((data / "minimalloc/challenging").glob("*.csv"))
    for more in MORE_PERCENT[:1] if options.quick else MORE_PERCENT:
        capacity = CAPACITY + CAPACITY * more // 100
        first = len(rows)
        for path in challenging:
            report(solve(program, path, ["--time-limit", "30"], capacity))
        done = [r for r in rows[first:] if r["status"] in ("optimal", "feasible")]
        print(f"  +{more} %: {len(done)} of {len(challenging)}, {sum(r['cpu_seconds'] for r in rows[first:]):.2f} s CPU in all")
    if not options.quick:
        report(solve(program, data / "minimalloc/challenging/C.1048576.csv", ["--time-limit", "30"], 1039360))
        for name, seconds in (("somas/resnet50", 10), ("somas/pangu_2.6B", 10), ("iopddl/G_1", 10), ("iopddl/S_1", 20)):
            report(solve(program, data / f"{name}.csv", ["--time-limit", str(seconds)]))
        for name in ("D", "J"):
            report(solve(program, data / f"minimalloc/challenging/{name}.1048576.csv", ["--time-limit", "20"]))
        with tempfile.TemporaryDirectory() as folder:
            report(solve(program, million(folder), ["--algorithm", "greedy", "--time-limit", "8"]))
    if options.json:
        header = {"command": "./dev bench layout", "machine": platform.processor() or platform.machine(),
                  "cores": os.cpu_count(), "rows": rows}
        options.json.write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
