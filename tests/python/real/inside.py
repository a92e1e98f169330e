# SPDX-License-Identifier: Apache-2.0
"""How a real program is compared with stock."""

import programs  # noqa: F401  (puts the packages on the path)
from equality import first_difference, run_inside, run_stock

import plimsoll

STEPS = 3


def check(make):
    """Half of stock's peak has to do; a quarter does, or the operator that needs more is named."""
    steps = 1 if make().drives_itself else STEPS
    expected, peak = run_stock(make, steps)
    for share in (0.5, 0.25):
        budget = int(peak * share)
        try:
            actual, report = run_inside(make, steps, budget)
        except plimsoll.BudgetExceededError as error:
            assert share < 0.5, f"half of the peak did not do: {error}"
            assert error.minimum_budget_bytes > budget and error.pinned_by
            continue
        assert first_difference(expected, actual) == ""
        assert report.peak_bytes <= budget
