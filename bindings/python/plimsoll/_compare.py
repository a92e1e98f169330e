# SPDX-License-Identifier: Apache-2.0
"""Stock and budgeted runs of a user's own step, in turns, and whether they are the same."""

from __future__ import annotations

import dataclasses
import re
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from plimsoll import _native, _sessions, _state
from plimsoll.errors import BudgetExceededError, InvalidArgumentError
from plimsoll.reports import Report

_SHARE = re.compile(r"(\d+(?:\.\d+)?)%(a?)")


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One budget. Bytes are exact; ratios are to stock's time for a step."""

    budget: str
    budget_bytes: int
    stock_peak_bytes: int
    peak_bytes: int = 0
    lower_bound_bytes: int = 0
    identical: bool = False
    first_difference: str = ""
    time_ratio: float = 0.0
    time_ratio_min: float = 0.0
    time_ratio_max: float = 0.0
    #: Where the budget cannot work: the least that the operator ``pinned_by`` needs.
    minimum_budget_bytes: int = 0
    pinned_by: str = ""

    @property
    def fits(self) -> bool:
        """Says whether the budget was enough."""
        return self.minimum_budget_bytes == 0


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What ``compare`` found. Prints as a table."""

    steps: int
    stock_peak_bytes: int
    persistent_bytes: int
    stock_step_seconds: float
    rows: list[ComparisonRow]

    def as_dict(self) -> dict[str, Any]:
        """Returns all figures by name, rows as a list of the same."""
        return dataclasses.asdict(self)

    @property
    def identical(self) -> bool:
        """Says whether every run that had enough memory was the same as stock."""
        return all(row.identical for row in self.rows if row.fits)

    def __str__(self) -> str:
        lines = [f"stock: peak {_native.format_size(self.stock_peak_bytes)}, "
                 f"{self.stock_step_seconds * 1e3:.1f} ms a step",
                 f"{'budget':>10}  {'bytes':>12}  {'share':>6}  {'peak':>12}  {'time':>6}  same as stock"]
        for row in self.rows:
            share = f"{100 * row.budget_bytes / self.stock_peak_bytes:.1f}%"
            size = _native.format_size(row.budget_bytes)
            if not row.fits:
                lines.append(f"{row.budget:>10}  {size:>12}  {share:>6}  does not fit: {row.pinned_by} needs "
                             f"{_native.format_size(row.minimum_budget_bytes)}")
                continue
            verdict = "yes" if row.identical else f"NO: {row.first_difference}"
            lines.append(f"{row.budget:>10}  {size:>12}  {share:>6}  {_native.format_size(row.peak_bytes):>12}  "
                         f"{row.time_ratio:>5.2f}x  {verdict}")
        return "\n".join(lines)


@dataclasses.dataclass
class _Run:
    bits: dict[str, str]
    step_seconds: float
    report: Report | None = None
    peak_bytes: int = 0


class _Comparer:
    def __init__(self, step: Callable[[], Any], steps: int, options: dict[str, Any]) -> None:
        self.step, self.steps, self.options = step, steps, options
        self.touched = _state.Touched(step)
        self.start = _state.Snapshot(self.touched)

    def stock(self) -> _Run:
        self.start.restore()
        persistent = self.touched.persistent_bytes()
        _native.reset_allocator_statistics()
        before = _native.allocator_statistics()["live_bytes"]
        returned, seconds = self._steps(lambda: self.step())
        peak = persistent + _native.allocator_statistics()["peak_bytes"] - before
        return _Run(_state.bits_of(self.touched, returned), seconds, peak_bytes=peak)

    def inside(self, budget_bytes: int) -> _Run:
        self.start.restore()
        with _sessions.session(budget_bytes, **self.options) as session:
            def one() -> Any:
                with session.step():
                    return self.step()

            returned, seconds = self._steps(one)
            report = session.report()
        return _Run(_state.bits_of(self.touched, returned), seconds, report)

    def _steps(self, one: Callable[[], Any]) -> tuple[list[Any], float]:
        returned, times = [], []
        for _ in range(self.steps):
            begin = time.perf_counter()
            returned.append(one())
            times.append(time.perf_counter() - begin)
        # A session knows the step's sequence from the second on.
        return returned, statistics.median(times[min(2, self.steps - 1):])


def _resolve(budget: int | str, stock_peak: int, persistent: int) -> int:
    if isinstance(budget, str):
        share = _SHARE.fullmatch(budget.strip())
        if share is not None:
            part, floor = float(share.group(1)) / 100, persistent if share.group(2) else 0
            return max(1, int(floor + part * (stock_peak - floor)))
        if budget == "none":
            return stock_peak + stock_peak // 4 + (64 << 10)
    return _sessions.size_bytes(budget, "compare: budgets")


def _smallest(comparer: _Comparer, stock_peak: int) -> tuple[int, _Run]:
    """Finds the least budget that works, to 3 %, upwards from what the largest operator needs."""
    report = comparer.inside(stock_peak + stock_peak // 4 + (64 << 10)).report
    budget = max(report.lower_bound_bytes if report is not None else 0, 4096)
    while True:
        try:
            return budget, comparer.inside(budget)
        except BudgetExceededError as error:
            budget = max(budget + budget // 33, error.minimum_budget_bytes if error.minimum_budget_bytes < stock_peak else 0)
            if budget > 2 * stock_peak + (1 << 20):
                raise


def compare(step: Callable[[], Any], budgets: Sequence[int | str] = ("60%", "33%", "min"), *, steps: int = 5,
            repeats: int = 3, host_limit: int | str | None = None, spill: str | None = None) -> Comparison:
    """Runs a step function stock and inside budgets, in turns, and compares everything it touches.

    step: a function of no arguments that does one training step. What it reaches (modules,
    optimizers, schedulers, tensors, lists, counters) is put back before each run, so every run
    starts the same, and afterwards compared bit for bit, with what the steps returned and the
    generator. Your state is left as it was before the call.
    budgets: bytes, "1.5GiB", "33%" of stock's peak, "33%a" of what lies above the persistent bytes,
    "min" for the least that works, "none". steps: in each run. repeats: of each budget.

    Errors: InvalidArgumentError where the step does not repeat itself even in stock PyTorch.
    """
    if steps < 1 or repeats < 1:
        raise InvalidArgumentError(f"compare: steps is {steps} and repeats is {repeats}; write 1 or more")
    _sessions.install_allocator()
    comparer = _Comparer(step, steps, {"host_limit": host_limit, "spill": spill})
    try:
        comparer.stock()  # first calls set up what later ones reuse
        stock = comparer.stock()
        problem = _state.first_difference(stock.bits, comparer.stock().bits)
        if problem:
            raise InvalidArgumentError(
                f"compare: two stock runs of the step differ ({problem}), so nothing can be told from a third: "
                "take data from a fixed batch, not an iterator, and randomness from torch's generator")
        persistent = comparer.touched.persistent_bytes()
        rows = [_row(comparer, str(budget), _resolve_or_none(budget, stock.peak_bytes, persistent), stock, repeats)
                for budget in budgets]
        return Comparison(steps, stock.peak_bytes, persistent, stock.step_seconds, rows)
    finally:
        comparer.start.restore()


def _resolve_or_none(budget: int | str, stock_peak: int, persistent: int) -> int | None:
    return None if budget == "min" else _resolve(budget, stock_peak, persistent)


def _row(comparer: _Comparer, name: str, budget_bytes: int | None, stock: _Run, repeats: int) -> ComparisonRow:
    if budget_bytes is None:
        budget_bytes, _ = _smallest(comparer, stock.peak_bytes)
    ratios, problems, run = [], [], None
    for _ in range(repeats):
        try:
            run = comparer.inside(budget_bytes)
        except BudgetExceededError as error:
            return ComparisonRow(name, budget_bytes, stock.peak_bytes, pinned_by=error.pinned_by,
                                 minimum_budget_bytes=max(error.minimum_budget_bytes, budget_bytes + 1))
        problems.append(_state.first_difference(stock.bits, run.bits))
        ratios.append(run.step_seconds / comparer.stock().step_seconds)
    report = run.report if run is not None and run.report is not None else Report()
    problem = next((text for text in problems if text), "")
    return ComparisonRow(name, budget_bytes, stock.peak_bytes, report.peak_bytes, report.lower_bound_bytes, problem == "",
                         problem, statistics.median(ratios), min(ratios), max(ratios))
