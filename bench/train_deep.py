#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Deep residual networks inside a budget, beside stock.

    ./dev bench train_deep                          both parts
    ./dev bench train_deep --part budget            a 254-layer net at 5, 10 and 20 % of stock's peak
    ./dev bench train_deep --part depth             how deep a net trains in --limit, against stock

Part "depth" finds the deepest resnet:stages=1-1-N-1 that stock trains inside the limit (level
allocator), then trains one at least --factor times deeper inside the same limit and compares its
losses with a stock run without any limit. That run needs about --factor times the limit of memory.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

COMMON = ["--batch", "16", "--threads", "2", "--json", "-", "--quiet"]


def train(build, model, *flags, allow=(0,)):
    """Runs `plimsoll train` and returns its JSON; None where it ended with another allowed code."""
    command = [str(build / "bindings/cli/plimsoll"), "train", model, *COMMON, *flags]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return json.loads(run.stdout)
    if run.returncode in allow:
        return None
    sys.exit(f"{' '.join(command)} ended with {run.returncode}: {run.stderr.strip()}")


def depth_of(middle):
    return 3 * (middle + 3) + 2


def model_of(middle):
    return f"resnet:stages=1-1-{middle}-1,image=32,channels=16"


def part_budget(build, options):
    rows = []
    for budget in ("20%", "10%", "5%"):
        result = train(build, "resnet:stages=6-32-40-6,image=32,channels=16", "--budget", budget,
                       "--level", "eager", "--steps", str(options.steps), "--against-stock",
                       "--data", options.data, allow=(0, 3))
        if result is None:
            print(f"{budget:>4} of stock's peak: below the least budget")
            continue
        rows.append({"budget": budget, **{key: result[key] for key in (
            "budget_bytes", "peak_bytes", "stock_peak_bytes", "lower_bound_bytes", "identical",
            "time_ratio", "offloaded_bytes", "prefetched_bytes", "moved_lower_bound_bytes")}})
        row = rows[-1]
        moved = row["offloaded_bytes"] + row["prefetched_bytes"]
        print(f"{budget:>4} of stock's {row['stock_peak_bytes']:,} bytes: peak {row['peak_bytes']:,}, "
              f"identical {row['identical']}, {row['time_ratio']:.2f} x the time, moved {moved:,} "
              f"(least {row['moved_lower_bound_bytes']:,})", flush=True)
    return rows


def deepest_stock(build, options):
    fits = lambda middle: train(build, model_of(middle), "--level", "allocator", "--budget",
                                options.limit, "--steps", "2", "--data", options.data,
                                allow=(0, 3)) is not None
    low, high = 1, 2
    if not fits(low):
        sys.exit(f"not even {model_of(low)} fits in {options.limit}")
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def part_depth(build, options):
    stock_middle = deepest_stock(build, options)
    middle = -(-options.factor * depth_of(stock_middle) // 3)
    while depth_of(middle) < options.factor * depth_of(stock_middle):
        middle += 1
    print(f"stock's deepest in {options.limit}: {depth_of(stock_middle)} layers", flush=True)
    spill = ["--host-limit", options.host_limit, "--spill", options.spill] if options.spill else []
    ours = train(build, model_of(middle), "--level", "eager", "--budget", options.limit, "--steps",
                 "3", "--data", options.data, *spill)
    print(f"{depth_of(middle)} layers in {options.limit}: peak {ours['peak_bytes']:,}, losses "
          f"{ours['losses']}", flush=True)
    row = {"limit": options.limit, "stock_depth": depth_of(stock_middle), "depth": depth_of(middle),
           "peak_bytes": ours["peak_bytes"], "losses": ours["losses"]}
    if not options.skip_stock:
        stock = train(build, model_of(middle), "--level", "allocator", "--steps", "3", "--data",
                      options.data)
        row["identical"] = stock["losses"] == ours["losses"]
        row["stock_peak_bytes"] = stock["peak_bytes"]
        print(f"stock without limit: peak {stock['peak_bytes']:,}, losses identical "
              f"{row['identical']}", flush=True)
    return [row]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build folder")
    parser.add_argument("--part", choices=("budget", "depth"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--limit", default="512MiB")
    parser.add_argument("--factor", type=int, default=20)
    parser.add_argument("--spill", help="a folder for what exceeds --host-limit")
    parser.add_argument("--host-limit", default="4GiB")
    parser.add_argument("--skip-stock", action="store_true",
                        help="part depth: without the stock run, which needs FACTOR x LIMIT")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load "
          f"{os.getloadavg()[0]:.1f}")
    results = {}
    if options.part in (None, "budget"):
        results["budget"] = part_budget(options.build, options)
    if options.part in (None, "depth"):
        results["depth"] = part_depth(options.build, options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    rows = [row for part in results.values() for row in part]
    return 0 if all(row.get("identical", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
