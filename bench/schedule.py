#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Orders every graph of tests/data/graphs with every algorithm, side by side.

    ./dev bench schedule                      all graphs, all algorithms, 10 s each
    ./dev bench schedule --only search --limit 60
    ./dev bench schedule --growth growth.svg  generated graphs of 10^3 to 10^6 ops

Peaks and bounds in KiB; a star marks a proved peak. Every order is replayed before it is reported.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALGORITHMS = ["program", "greedy", "serenity", "ilp", "search"]
GROWTH = [("resnet", n) for n in (1000, 3000, 10000, 30000, 100000, 300000, 1000000)] + [
    ("layers", n) for n in (1000, 3000, 10000, 30000, 100000)]


def order(build, graph, algorithm, limit):
    """One line of order_bench as a dictionary; None where the algorithm refuses the graph."""
    program = Path(build) / "bench/order_bench"
    run = subprocess.run([str(program), str(graph), algorithm, str(limit)], capture_output=True,
                         text=True, check=False)
    return json.loads(run.stdout) if run.returncode == 0 else None


def show(row):
    if row is None:
        return f"{'refused':>34}"
    star = "*" if row["proved"] else " "
    return f"{row['peak_bytes'] / 1024:12.1f}{star}{row['seconds']:9.3f} s{row['states']:10d}"


def side_by_side(options):
    algorithms = [options.only] if options.only else ALGORITHMS
    rows = []
    print(f"{'graph':26}{'ops':>6}{'fused':>6}{'bound':>12}  " +
          "".join(f"{name + ': peak, time, states':>34}" for name in algorithms))
    for path in sorted((ROOT / "tests/data/graphs").glob("*/*.txt")):
        found = {name: order(options.build, path, name, options.limit) for name in algorithms}
        rows.append({"graph": path.stem, "results": found})
        last = next((found[name] for name in reversed(algorithms) if found[name]), None)
        head = (f"{path.stem:26}{last['ops']:6d}{last['fused_ops']:6d}"
                f"{last['lower_bound_bytes'] / 1024:12.1f}  ") if last else f"{path.stem:26}"
        print(head + "".join(show(found[name]) for name in algorithms), flush=True)
    for name in algorithms:
        solved = [row["results"][name] for row in rows if row["results"][name]]
        print(f"{name}: {len(solved)} of {len(rows)} graphs, {sum(r['proved'] for r in solved)} proved, "
              f"{sum(r['seconds'] for r in solved):.2f} s in all")
    return rows


def growth(options):
    rows = []
    print(f"{'graph':18}{'ops':>9}{'time':>10}{'resident MiB':>14}{'gap':>11}")
    for kind, ops in GROWTH:
        # The layers use up any limit; the others end by themselves.
        limit = options.limit if kind == "layers" else 60
        row = order(options.build, f"{kind}:{ops}", "search", limit)
        if row is None:
            sys.exit(f"order_bench failed on {kind}:{ops}")
        gap = row["peak_bytes"] / row["lower_bound_bytes"] - 1
        rows.append({"kind": kind, **row})
        print(f"{kind + ':' + str(ops):18}{row['ops']:9d}{row['seconds']:9.3f}s"
              f"{row['resident_bytes'] / 2**20:14.0f}{gap:11.4%}", flush=True)
    Path(options.growth).write_text(draw(rows), encoding="utf-8")
    return rows


def draw(rows):
    """Time over operators, both axes logarithmic."""
    width, height, left, bottom = 640, 400, 60, 50

    def place(ops, seconds):
        x = left + (math.log10(ops) - 3) / 3.05 * (width - left - 20)
        y = height - bottom - (math.log10(max(seconds, 1e-3)) + 3) / 5 * (height - bottom - 30)
        return x, y

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for power in range(3, 7):
        x = place(10**power, 1)[0]
        parts.append(f'<line x1="{x:.1f}" y1="30" x2="{x:.1f}" y2="{height - bottom}" stroke="#ddd"/>'
                     f'<text x="{x:.1f}" y="{height - 30}" text-anchor="middle">10^{power} ops</text>')
    for power in range(-3, 3):
        y = place(1000, 10**power)[1]
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 20}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>')
    for color, kind in (("#1f77b4", "resnet"), ("#d62728", "layers")):
        chosen = [row for row in rows if row["kind"] == kind]
        points = [place(row["ops"], row["seconds"]) for row in chosen]
        parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="' +
                     " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
        for (x, y), row in zip(points, chosen):
            gap = row["peak_bytes"] / row["lower_bound_bytes"] - 1
            label = "proved" if row["proved"] else f"gap {gap:.1%}"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'
                         f'<text x="{x + 5:.1f}" y="{y - 5:.1f}" fill="{color}">{label}</text>')
        parts.append(f'<text x="{points[0][0] + 5:.1f}" y="{points[0][1] + 16:.1f}" '
                     f'fill="{color}">{kind}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--limit", type=float, default=10, help="seconds for each run")
    parser.add_argument("--only", choices=ALGORITHMS, help="one algorithm")
    parser.add_argument("--growth", metavar="FILE.svg", help="draw time over size instead")
    parser.add_argument("--json", metavar="FILE", help="write the rows")
    options = parser.parse_args()
    rows = growth(options) if options.growth else side_by_side(options)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
