# SPDX-License-Identifier: Apache-2.0
"""How a real program is compared with stock."""

import programs  # noqa: F401  (puts the packages on the path)
from equality import first_difference, run_inside, run_stock

import plimsoll

STEPS = 3


def check(make):
    """Half of stock's peak has to do; a quarter does, or the operator that needs more is named; and so has 15 %
    on top of what the largest operator needs."""
    steps = 1 if make().drives_itself else STEPS
    expected, peak = run_stock(make, steps)

    def report_at(budget):
        actual, report = run_inside(make, steps, budget)
        assert first_difference(expected, actual) == ""
        assert report.peak_bytes <= budget
        return report

    bound = report_at(peak // 2).lower_bound_bytes
    try:
        report_at(peak // 4)
    except plimsoll.BudgetExceededError as error:
        assert error.minimum_budget_bytes > peak // 4 and error.pinned_by
    # Operators that run in chunks there, and did not before, need less: the bound is then another's.
    while (lower := report_at(bound * 115 // 100).lower_bound_bytes) < bound:
        bound = lower
