# SPDX-License-Identifier: Apache-2.0
"""The planners of the command line, as functions over files. Each needs no session."""

from __future__ import annotations

import os
from typing import Any

from plimsoll import _program
from plimsoll._sessions import size_bytes

PathLike = str | os.PathLike[str]


def explain(snapshot: PathLike, *, html: PathLike | None = None) -> dict[str, Any]:
    """Says what a PyTorch memory snapshot (``torch.cuda.memory._dump_snapshot``) holds.

    html: a page with the same, to be written. Returns the JSON of ``plimsoll explain``: peak,
    reserved and load bytes, the arena a plan would need, fragmentation, the largest owners.
    Errors: InvalidArgumentError for what is no snapshot, with the byte at which that shows.
    """
    flags = [] if html is None else ["--html", os.fspath(html)]
    return _program.run("explain", os.fspath(snapshot), *flags)


def schedule(graph: PathLike, *, algorithm: str | None = None, time_limit: float | None = None,
             budget: int | str | None = None, rewrite: bool = False) -> dict[str, Any]:
    """Returns an order of least peak memory for a graph file (.json, .onnx, .txt).

    time_limit: seconds. budget: bytes or a text; an order above it is a failed check. The result
    holds ``order``, ``peak_bytes``, ``lower_bound_bytes`` and whether the peak is ``proved`` least.
    Errors: InvalidArgumentError for a file that is no graph.
    """
    flags: list[str] = []
    if algorithm is not None:
        flags += ["--algorithm", algorithm]
    if time_limit is not None:
        flags += ["--time-limit", str(time_limit)]
    if budget is not None:
        flags += ["--budget", str(size_bytes(budget, "schedule: budget"))]
    if rewrite:
        flags.append("--rewrite")
    return _program.run("schedule", os.fspath(graph), *flags)


def layout(buffers: PathLike, *, capacity: int | str | None = None, align: int | None = None,
           algorithm: str | None = None, time_limit: float | None = None,
           out: PathLike | None = None) -> dict[str, Any]:
    """Returns addresses for buffers with lifetimes (CSV ``id,lower,upper,size`` and other forms).

    capacity: bytes or a text. align: bytes. time_limit: seconds. out: a CSV file with the addresses,
    to be written. The result holds ``arena_bytes``, ``load_bytes`` (no arena can be smaller) and
    ``status``: optimal, feasible, infeasible or unknown.
    Errors: InvalidArgumentError for a file that is none of these.
    """
    flags: list[str] = []
    if capacity is not None:
        flags += ["--capacity", str(size_bytes(capacity, "layout: capacity"))]
    if align is not None:
        flags += ["--align", str(align)]
    if algorithm is not None:
        flags += ["--algorithm", algorithm]
    if time_limit is not None:
        flags += ["--time-limit", str(time_limit)]
    if out is not None:
        flags += ["--out", os.fspath(out)]
    return _program.run("layout", os.fspath(buffers), *flags)
