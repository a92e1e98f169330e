#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latency of small nets on planned allocation, beside stock LibTorch, on three mallocs.

    ./dev bench planned_allocation --json bench/results/planned_allocation.json
    ./dev bench planned_allocation --calls     the allocators alone, on recorded traces (traces/)

The plan answers LibTorch's requests; whatever else a process allocates (operators' scratch, C++ objects)
comes from its malloc: the C library's, or jemalloc or mimalloc preloaded. So each of the three is measured
with and without the plan, in blocks of stock and of planned steps in turn in one process: first the steps'
times, the ratio being the median over pairs of blocks, then the time inside the allocator; what the timer
itself takes is measured too, taken off, and stands beside. Resident peaks are of a process each.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

NETS = {
    "mlp": "mlp:layers=4,dim=256,image=16,image-channels=1,classes=10",
    "lstm": "lstm:layers=1,dim=64,seq=8,dropout=0",
    "mobilenet": "mobilenet-v2:channels=8,image=32,classes=10",
    "gpt-token": "gpt:layers=4,dim=128,heads=4,seq=1",
}
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
MALLOCS = {"glibc": None, "jemalloc": LIBRARIES / "libjemalloc.so.2", "mimalloc": LIBRARIES / "libmimalloc.so.2"}


def run(program, net, kind, malloc, mode, *numbers):
    environment = dict(os.environ, OMP_WAIT_POLICY="PASSIVE", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")
    if MALLOCS[malloc]:
        environment["LD_PRELOAD"] = str(MALLOCS[malloc])
    result = subprocess.run([program, NETS[net], kind, mode, *map(str, numbers)], env=environment,
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{net} {kind} {mode} on {malloc}: {result.stderr}")
    return json.loads(result.stdout)


def middle(runs, key):
    return statistics.median(each[key] for each in runs)


def measure_pairs(program, net, kind, malloc, options):
    """One thread: step times and the allocator's part side by side, then the resident peaks."""
    cell = run(program, net, kind, malloc, "paired", options.pairs)
    for name in ("stock", "planned"):
        cell[f"{name}_allocator_seconds"] -= cell["timer_seconds"]
        alone = run(program, net, kind, malloc, name, 20, 1)
        cell[f"{name}_peak_resident_bytes"] = alone["peak_resident_bytes"]
        cell["arena_bytes"] = alone["arena_bytes"]
    requests = cell.pop("planned") + cell["unplanned"]
    cell["planned_share_ratio"] = (requests - cell.pop("unplanned")) / max(1, requests)
    cell["allocator_ratio"] = cell["planned_allocator_seconds"] / cell["stock_allocator_seconds"]
    return cell


def measure_threads(program, net, kind, malloc, threads, options):
    """Several threads, each with its own net: a process each for stock and planned, in turn."""
    cell = {}
    steps = max(20, options.steps // (4 if kind == "training" else 1) // threads)
    runs = {name: [] for name in ("stock", "planned")}
    for _ in range(options.rounds):
        for name in runs:
            runs[name].append(run(program, net, kind, malloc, name, steps, threads))
    for name, each in runs.items():
        cell[f"{name}_seconds"] = middle(each, "median_seconds")
        cell[f"{name}_peak_resident_bytes"] = round(middle(each, "peak_resident_bytes"))
    last = runs["planned"][-1]
    requests = sum(last[key] for key in ("planned", "missed", "escaped", "refused"))
    cell["planned_share_ratio"] = last["planned"] / max(1, requests)
    cell["time_ratio"] = cell["planned_seconds"] / cell["stock_seconds"]
    return cell


def show(row):
    for malloc in MALLOCS:
        cell = row[malloc]
        print(f"{row['net']:<10} {row['kind']:<9} {row['threads']:>2} {malloc:<9} {cell['stock_seconds'] * 1e6:>9.1f}"
              f" {cell['planned_seconds'] * 1e6:>9.1f}  {cell['time_ratio']:.3f}"
              f" {cell.get('stock_allocator_seconds', 0) * 1e6:>9.2f} {cell.get('planned_allocator_seconds', 0) * 1e6:>9.2f}"
              f" {cell['stock_peak_resident_bytes'] / 2**20:>7.1f} {cell['planned_peak_resident_bytes'] / 2**20:>7.1f}"
              f"  {cell['planned_share_ratio']:.3f}", flush=True)
    best = row["best"]
    print(f"{'':<23} best of three: step {best['time_ratio']:.3f}"
          + (f", in the allocator {best['allocator_ratio']:.2f}" if "allocator_ratio" in best else ""), flush=True)


def best_of(row):
    """The best planned process over the best stock one, whatever the malloc."""
    def ratio(key):
        return min(row[m][f"planned_{key}"] for m in MALLOCS) / min(row[m][f"stock_{key}"] for m in MALLOCS)
    best = {"time_ratio": ratio("seconds")}
    if row["threads"] == 1:
        best["allocator_ratio"] = ratio("allocator_seconds")
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pairs", type=int, default=31, help="pairs of blocks of about 10 ms each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", default="1", help="threads that serve at once, as in 1,2,4,8")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--kinds", default="inference,training")
    parser.add_argument("--calls", action="store_true", help="run the benchmark of the calls alone")
    options = parser.parse_args()
    if options.calls:
        traces = Path(__file__).resolve().parent / "traces"
        out = ["--benchmark_out_format=json", f"--benchmark_out={options.json}"] if options.json else []
        # Rows in random order, five times: a slow stretch of the machine does not fall on one of them.
        return subprocess.run([options.build / "bench/allocation_benchmark", traces, *out, "--benchmark_repetitions=5",
                               "--benchmark_enable_random_interleaving=true",
                               "--benchmark_report_aggregates_only=true"], check=False).returncode
    program = options.build / "bench/small_nets"
    print("net, kind, threads, malloc; step in us: stock, planned, ratio; in the allocator, us: stock, planned;"
          " peak resident MiB: stock, planned; share of requests answered from the plan")
    rows = []
    for net in options.nets.split(","):
        for kind in options.kinds.split(","):
            for threads in map(int, options.threads.split(",")):
                row = {"net": net, "kind": kind, "threads": threads}
                for malloc in MALLOCS:
                    row[malloc] = (measure_pairs(program, net, kind, malloc, options) if threads == 1 else
                                   measure_threads(program, net, kind, malloc, threads, options))
                row["best"] = best_of(row)
                rows.append(row)
                show(row)
    if options.json:
        document = {"command": "./dev bench planned_allocation " + " ".join(
                        a for a in sys.argv[1:] if a not in ("--build", str(options.build), "--json", str(options.json))),
                    "cores": os.cpu_count(), "load": os.getloadavg()[0], "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
