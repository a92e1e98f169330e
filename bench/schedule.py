#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Orders every graph of tests/data/graphs with every algorithm, side by side.

    ./dev bench schedule                      all graphs, all algorithms, 10 s each
    ./dev bench schedule --only search --limit 60
    ./dev bench schedule --picture all.svg    the same, drawn too
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
COLORS = {"program": "#7f7f7f", "greedy": "#ff7f0e", "serenity": "#2ca02c", "ilp": "#9467bd",
          "search": "#1f77b4"}
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


def group(name):
    """What the project promises figures for."""
    if name.split("-")[0] in ("nasnet", "amoebanet", "darts", "pnas"):
        return "eight NAS nets"
    if name.startswith("randwire"):
        return "RandWire-64" if name.endswith("64") else (
            "RandWire-32 stacks" if "stack" in name else "RandWire-32")
    if name == "t-randwire32":
        return "t-randwire32"
    return "other training graphs" if name[:2] in ("x-", "t-") else "other inference graphs"


def summary(rows, algorithms):
    groups = {}
    for row in rows:
        groups.setdefault(group(row["graph"]), []).append(row["results"])
    print(f"\n{'graphs':26}{'':>6}" + "".join(f"{name:>34}" for name in algorithms))
    for name, results in [*groups.items(), ("all", [row["results"] for row in rows])]:
        cells = []
        for algorithm in algorithms:
            solved = [found[algorithm] for found in results if found[algorithm]]
            seconds = sum(one["seconds"] for one in solved)
            cells.append(f"{sum(one['proved'] for one in solved)} proved, {seconds:.3f} s in all")
        print(f"{name:26}{len(results):6d}" + "".join(f"{cell:>34}" for cell in cells))


def side_by_side(options):
    algorithms = [options.only] if options.only else ALGORITHMS
    rows = []
    print(f"{'graph':26}{'ops':>6}{'fused':>6}{'bound':>12}  " +
          "".join(f"{name + ': peak, time, states':>34}" for name in algorithms))
    for path in sorted((ROOT / "tests/data/graphs").glob("*/*.txt")):
        found = {name: order(options.build, path, name, options.limit) for name in algorithms}
        for one in filter(None, found.values()):
            one["graph"] = path.stem
        rows.append({"graph": path.stem, "results": found})
        last = next((found[name] for name in reversed(algorithms) if found[name]), None)
        head = (f"{path.stem:26}{last['ops']:6d}{last['fused_ops']:6d}"
                f"{last['lower_bound_bytes'] / 1024:12.1f}  ") if last else f"{path.stem:26}"
        print(head + "".join(show(found[name]) for name in algorithms), flush=True)
    summary(rows, algorithms)
    if options.picture:
        Path(options.picture).write_text(draw_side_by_side(rows, algorithms), encoding="utf-8")
    return rows


def text(x, y, words, anchor="start", color="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{words}</text>'


def draw_side_by_side(rows, algorithms):
    """One line a graph: each algorithm's peak over the best bound, and what it took."""
    line, left, plot, top = 17, 190, 420, 64
    width, height = left + plot + 20 + 92 * len(algorithms), top + line * len(rows) + 40
    most = 2.0

    def place(ratio):
        return left + (min(ratio, most) - 1) / (most - 1) * plot

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="11">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             text(8, 18, "Peak over the best lower bound (filled: proved optimal by that algorithm; "
                         "at the right edge: 2 or more), and time")]
    for tick in (1, 1.2, 1.4, 1.6, 1.8, 2):
        parts.append(f'<line x1="{place(tick):.1f}" y1="{top - 8}" x2="{place(tick):.1f}" '
                     f'y2="{height - 36}" stroke="#ddd"/>' +
                     text(place(tick), height - 22, f"{tick:g}", "middle"))
    for at, name in enumerate(algorithms):
        x = left + plot + 20 + 92 * (at + 1) - 6
        parts.append(text(x, top - 14, name, "end", COLORS[name]))
    for index, row in enumerate(rows):
        y = top + line * index + 8
        if index % 2 == 0:
            parts.append(f'<rect x="0" y="{y - 12}" width="{width}" height="{line}" '
                         'fill="#f6f6f6" fill-opacity="0.6"/>')
        parts.append(text(left - 8, y, row["graph"], "end"))
        found = row["results"]
        bound = max(one["lower_bound_bytes"] for one in found.values() if one)
        for at, name in enumerate(algorithms):
            x = left + plot + 20 + 92 * (at + 1) - 6
            one = found[name]
            if one is None:
                parts.append(text(x, y, "too large", "end", "#999"))
                continue
            parts.append(text(x, y, f"{one['seconds']:.3f} s", "end", COLORS[name]))
            # Above one another where several coincide.
            parts.append(f'<circle cx="{place(one["peak_bytes"] / bound):.1f}" '
                         f'cy="{y - 4 + (at - 2) * 1.5:.1f}" r="4" stroke="{COLORS[name]}" '
                         f'stroke-width="1.6" '
                         f'fill="{COLORS[name] if one["proved"] else "white"}"/>')
    return "\n".join(parts) + "\n</svg>\n"


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
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the graphs side by side")
    parser.add_argument("--growth", metavar="FILE.svg", help="draw time over size instead")
    parser.add_argument("--json", metavar="FILE", help="write the rows")
    options = parser.parse_args()
    rows = growth(options) if options.growth else side_by_side(options)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
