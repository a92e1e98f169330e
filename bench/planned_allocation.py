#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latency of small nets on planned allocation, beside stock LibTorch with three mallocs.

    ./dev bench planned_allocation --json bench/results/planned_allocation.json
    ./dev bench planned_allocation --calls     the allocators alone, on recorded traces (traces/)

Each measurement is a process of its own: stock on the C library, stock with jemalloc or mimalloc
preloaded, and Plimsoll's planned allocation on the C library. Rounds are interleaved, so that a slow
stretch of the machine hits all alike; a cell is the median over rounds of the process's median step.
A second kind of process times each call of the allocator.
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
PRELOAD = {"glibc": None, "jemalloc": LIBRARIES / "libjemalloc.so.2", "mimalloc": LIBRARIES / "libmimalloc.so.2",
           "planned": None}


def run(program, net, kind, allocator, steps, threads, counted):
    mode = "planned" if allocator == "planned" else "stock"
    if counted:
        mode = "counted-planned" if allocator == "planned" else "counted"
    environment = dict(os.environ, OMP_WAIT_POLICY="PASSIVE", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")
    if PRELOAD[allocator]:
        environment["LD_PRELOAD"] = str(PRELOAD[allocator])
    result = subprocess.run([program, NETS[net], kind, mode, str(steps), str(threads)], env=environment,
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{net} {kind} {allocator}: {result.stderr}")
    return json.loads(result.stdout)


def measure(program, net, kind, threads, options):
    steps = max(20, options.steps // (4 if kind == "training" else 1))
    runs = {name: [] for name in PRELOAD}
    counted = {name: [] for name in PRELOAD}
    for _ in range(options.rounds):
        for name in PRELOAD:
            runs[name].append(run(program, net, kind, name, steps, threads, False))
    if threads == 1:
        for name in PRELOAD:
            counted[name].append(run(program, net, kind, name, steps, 1, True))
    row = {"net": net, "kind": kind, "threads": threads}
    for name in PRELOAD:
        row[name] = {
            "median_seconds": statistics.median(r["median_seconds"] for r in runs[name]),
            "peak_resident_bytes": round(statistics.median(r["peak_resident_bytes"] for r in runs[name])),
        }
        if counted[name]:
            row[name]["allocator_seconds_per_step"] = counted[name][0]["allocator_seconds_per_step"]
            row[name]["allocator_calls_per_step"] = counted[name][0]["allocator_calls_per_step"]
    last = runs["planned"][-1]
    row["planned_share_ratio"] = last["planned"] / max(1, last["planned"] + last["unplanned"])
    row["arena_bytes"] = last["arena_bytes"]
    best = min(row[name]["median_seconds"] for name in PRELOAD if name != "planned")
    row["time_ratio_to_best"] = row["planned"]["median_seconds"] / best
    return row


def show(row):
    cells = " ".join(f"{row[name]['median_seconds'] * 1e6:>10.1f}" for name in PRELOAD)
    inside = " ".join(f"{row[name].get('allocator_seconds_per_step', 0) * 1e6:>8.2f}" for name in PRELOAD)
    resident = " ".join(f"{row[name]['peak_resident_bytes'] / 2**20:>7.1f}" for name in PRELOAD)
    print(f"{row['net']:<10} {row['kind']:<9} {row['threads']:>2} {cells}  {row['time_ratio_to_best']:.3f}"
          f" {inside} {resident} {row['planned_share_ratio']:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--threads", default="1", help="threads that serve at once, as in 1,2,4,8")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--kinds", default="inference,training")
    parser.add_argument("--calls", action="store_true", help="run the benchmark of the calls alone")
    options = parser.parse_args()
    if options.calls:
        traces = Path(__file__).resolve().parent / "traces"
        out = ["--benchmark_out_format=json", f"--benchmark_out={options.json}"] if options.json else []
        return subprocess.run([options.build / "bench/allocation_benchmark", traces, *out], check=False).returncode
    print("step in us for " + ", ".join(PRELOAD) + "; planned over the best of the others; allocator's share in us;"
          " peak resident MiB; requests answered from the plan")
    rows = []
    for net in options.nets.split(","):
        for kind in options.kinds.split(","):
            for threads in map(int, options.threads.split(",")):
                rows.append(measure(options.build / "bench/small_nets", net, kind, threads, options))
                show(rows[-1])
    if options.json:
        document = {"command": " ".join(sys.argv[1:]), "cores": os.cpu_count(), "load": os.getloadavg()[0],
                    "rounds": options.rounds, "steps": options.steps, "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
