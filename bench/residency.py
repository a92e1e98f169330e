#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Residency: SuperNeurons' figures to the digit, then what the planner does beside it.

    ./dev bench residency                      all tables
    ./dev bench residency --tables paper,time  some of: paper, memory, time, rivals, capacity, speed

Times are simulated on the named device's model (see `plimsoll plan --help`), except in `speed`,
which is this machine's. Cells that fall short of what is promised end in `!`.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

MIB = 1 << 20

# (net, batch, figure, mode) -> MiB, and the layers run again: speed, memory, cost-aware. From the paper.
PAPER = {
    ("alexnet", 200): {"baseline": 2189.437, "liveness": 1489.355, "offload": 1132.056, "recompute": 886.230,
                       "recompute_speed": 993.018, "again": (14, 23, 17)},
    ("vgg16", 32): {"baseline": 5447.021, "liveness": 3567.727, "offload": 1940.930, "recompute": 1610.281,
                    "again": (22, 29, 23)},
    ("resnet50", 32): {"baseline": 9096.146, "liveness": 4439.469, "offload": 3155.312, "recompute": 406.125,
                       "recompute_speed": 455.125, "again": (84, 118, 85)},
    ("resnet101", 32): {"baseline": 13885.896, "liveness": 6730.219, "again": (169, 237, 170)},
    ("resnet152", 32): {"baseline": 19802.646, "liveness": 9559.969, "again": (254, 356, 255)},
}
# (net, batch, step model) -> the most MiB of activations and their gradients.
MEMORY = [("resnet50", 32, "stock", 394), ("resnet152", 32, "stock", 394), ("vgg16", 32, "stock", 1352),
          ("resnet:stages=6-32-596-6", 16, "stock", 197), ("alexnet", 200, "paper", 731)]
TIME = [("60%", 1.06), ("33%", 1.12), ("20%", 1.20)]
RIVALS = ["auto", "recompute-only", "offload-only", "superneurons", "baseline-chen", "baseline-dtr",
          "baseline-capuchin", "baseline-pofo", "baseline-checkmate"]


class Program:
    def __init__(self, build):
        self.path = Path(build) / "bindings/cli/plimsoll"

    def run(self, *arguments):
        """Returns the command's JSON; None where the budget cannot work."""
        done = subprocess.run([str(self.path), *map(str, arguments), "--json", "-", "--quiet"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 3:
            return None
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, arguments))}: {done.stderr}")
        return json.loads(done.stdout)

    def plan(self, net, batch, budget, *more):
        return self.run("plan", net, "--batch", batch, "--budget", budget, *more)


def paper_table(program):
    rows = []
    print("\nSuperNeurons' layer model, MiB (paper's figure where it differs)")
    for (net, batch), paper in PAPER.items():
        ours = program.run("superneurons", net, "--batch", batch)
        cells = []
        for key in ("baseline", "liveness", "offload", "recompute_speed", "recompute"):
            value = ours[f"{key}_bytes"] / MIB
            equal = key not in paper or abs(value - paper[key]) < 0.00051
            cells.append(f"{key} {value:.3f}" + ("" if equal else f" (paper {paper[key]})!")
                         + ("" if key in paper else " (not printed)"))
            rows.append({"net": net, "batch": batch, "figure": key, "mib": value, "paper": paper.get(key),
                         "equal": equal})
        again = tuple(ours["extra_recomputes"][mode] for mode in ("speed", "memory", "cost_aware"))
        cells.append(f"again {again}" + ("" if again == paper["again"] else "!"))
        rows.append({"net": net, "figure": "again", "value": again, "paper": paper["again"],
                     "equal": again == paper["again"]})
        print(f"  {net} b{batch}: " + ", ".join(cells))
    return rows


def memory_table(program):
    rows = []
    print("\nSmallest budget for activations and their gradients, MiB (arena after layout)")
    for net, batch, model, target in MEMORY:
        result = program.plan(net, batch, "min", "--activations-only", "--step-model", model)
        got = result["minimum_budget_bytes"] / MIB
        ratio = result["predicted_seconds"] / result["stock_predicted_seconds"]
        mark = "" if got <= target else "!"
        print(f"  {net:28} b{batch:<4} {model:6} stock {result['stock_peak_bytes'] / MIB:9.1f}  min {got:8.1f}{mark}"
              f"  target {target}  LB0 {result['lower_bound_bytes'] / MIB:.1f}  LB1"
              f" {result['resident_bound_bytes'] / MIB:.1f}  {ratio:.2f} x stock's time there")
        rows.append({"net": net, "batch": batch, "minimum_mib": got, "target_mib": target, "met": not mark})
    return rows


def time_table(program):
    rows = []
    print("\nSimulated time over stock's (auto), budgets in % of the saved bytes; ! = above what is promised")
    for device in ("a100-80g", "h200"):
        for net, batch in (("resnet50", 32), ("resnet152", 32), ("vgg16", 32), ("alexnet", 200)):
            cells = []
            budgets = list(TIME)
            bound = program.plan(net, batch, "none", "--activations-only", "--device", device)
            budgets.append((str(int(1.15 * bound["resident_bound_bytes"])), 1.40))
            for budget, target in budgets:
                result = program.plan(net, batch, budget, "--activations-only", "--device", device)
                label = "1.15 LB1" if target == 1.40 else budget
                if result is None:
                    cells.append(f"{label} infeasible!")
                    rows.append({"device": device, "net": net, "budget": label, "ratio": None, "met": False})
                    continue
                ratio = result["predicted_seconds"] / result["stock_predicted_seconds"]
                least = result["time_lower_bound_seconds"] / result["stock_predicted_seconds"]
                met = ratio <= target
                cells.append(f"{label} {ratio:.3f}{'' if met else '!'} (>= {least:.3f})")
                rows.append({"device": device, "net": net, "budget": label, "ratio": ratio, "bound": least,
                             "target": target, "met": met})
            print(f"  {device:9} {net:10} b{batch:<4} " + "  ".join(cells))
    return rows


def rivals_table(program):
    rows = []
    print("\nEvery policy, simulated time over stock's on a100-80g; - = does not fit; ! = auto is slower")
    for net, batch in (("resnet50", 32), ("vgg16", 32), ("resnet152", 32)):
        for budget in ("60%", "45%", "33%", "20%"):
            cells, best = [], None
            for policy in RIVALS:
                result = program.plan(net, batch, budget, "--activations-only", "--policy", policy)
                ratio = None if result is None else result["predicted_seconds"] / result["stock_predicted_seconds"]
                best = ratio if policy == "auto" else best
                worse = ratio is not None and policy != "auto" and (best is None or best > ratio * 1.0000001)
                cells.append(f"{policy} " + ("-" if ratio is None else f"{ratio:.3f}") + ("!" if worse else ""))
                rows.append({"net": net, "budget": budget, "policy": policy, "ratio": ratio, "beats_auto": worse})
            print(f"  {net:10} {budget:4} " + "  ".join(cells))
    return rows


def largest(fits, low, high, step):
    """The largest multiple of step in [low, high] that fits, by bisection; 0 where low does not."""
    if not fits(low):
        return 0
    while high - low > step:
        middle = (low + high) // 2 // step * step
        if middle in (low, high):
            break
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def capacity_table(program):
    rows = []
    limit = 12 << 30
    print("\nWhat fits in 12 GiB with parameters, gradients and one momentum (the paper's own figure)")

    def fits(net, batch, *more):
        result = program.plan(net, batch, "min", "--device", "v100-12g", *more)
        return result["minimum_budget_bytes"] <= limit

    for net, paper, target in (("resnet50", 384, 768), ("resnet152", 176, 704)):
        batch = largest(lambda b, net=net: fits(net, b), 128, 4096, 32)
        print(f"  {net}: batch {batch}{'' if batch >= target else '!'} (paper {paper}, target {target})")
        rows.append({"net": net, "batch": batch, "paper": paper, "target": target})
    for label, more, target in (("resident", (), 2498), ("streamed", ("--stream-optimizer-state",), 6000)):
        blocks = largest(lambda n, more=more: fits(f"resnet:stages=6-32-{n}-6", 16, *more), 100, 4000, 25)
        depth = 3 * (44 + blocks) + 2
        print(f"  (6,32,n,6) b16, optimizer state {label}: depth {depth}{'' if depth >= target else '!'}"
              f" (paper 1920, target {target})")
        rows.append({"depth": depth, "state": label, "target": target})
    return rows


def speed_table(program):
    rows = []
    print("\nPlanning, this machine (whole command, start of the program included)")
    for net, batch in (("resnet50", 32), ("resnet:stages=6-32-20-6", 16), ("resnet:stages=6-32-100-6", 16),
                       ("resnet:stages=6-32-788-6", 16), ("resnet:stages=6-32-3000-6", 4)):
        begin = time.monotonic()
        result = program.plan(net, batch, "33%", "--activations-only")
        seconds = time.monotonic() - begin
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"  {net:28} {result['steps']:7} steps  {seconds:7.2f} s  (largest so far {memory:.0f} MiB resident)")
        rows.append({"net": net, "steps": result["steps"], "seconds": seconds, "resident_mib": memory})
    return rows


TABLES = {"paper": paper_table, "memory": memory_table, "time": time_table, "rivals": rivals_table,
          "capacity": capacity_table, "speed": speed_table}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--tables", default=",".join(TABLES), help="comma-separated (default: all)")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args()
    chosen = options.tables.split(",")
    unknown = [name for name in chosen if name not in TABLES]
    if unknown:
        parser.error(f"--tables {','.join(unknown)}: there are {', '.join(TABLES)}")
    program = Program(options.build)
    result = {"date": date.today().isoformat(), "command": "./dev bench residency --tables " + options.tables}
    for name in chosen:
        result[name] = TABLES[name](program)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
