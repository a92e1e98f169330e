# SPDX-License-Identifier: Apache-2.0
"""What the package raises: each class also derives from what Python programs catch already."""

from __future__ import annotations

import torch

__all__ = ["BudgetExceededError", "InternalError", "InvalidArgumentError", "PlimsollError",
           "SpillError", "UnsupportedError"]


class PlimsollError(Exception):
    """The root of the family."""


class InvalidArgumentError(PlimsollError, ValueError):
    """A wrong argument, or a call at the wrong time. Says what would be right."""


class UnsupportedError(PlimsollError, NotImplementedError):
    """Something valid that this release does not do. Says what to do instead."""


class SpillError(PlimsollError, OSError):
    """A file or copy of the lower tiers failed. Every tensor keeps its value."""


class InternalError(PlimsollError, RuntimeError):
    """A bug of Plimsoll's."""


class BudgetExceededError(PlimsollError, torch.OutOfMemoryError):
    """An operator does not fit into the budget. Every tensor keeps its value.

    ``budget_bytes`` is the budget, ``minimum_budget_bytes`` the least that the operator
    ``pinned_by`` needs; 0 and "" where that is not known. All in bytes.
    """

    budget_bytes: int = 0
    minimum_budget_bytes: int = 0
    pinned_by: str = ""


def raise_as_ours(error: BaseException) -> None:
    """Raises BudgetExceededError in place of LibTorch's own out-of-memory error, if it is ours.

    Inside a step the error is LibTorch's, since it comes out of an operator; a step and a session
    give it its figures when they end by it.
    """
    if isinstance(error, PlimsollError) or not isinstance(error, torch.OutOfMemoryError):
        return
    if "Plimsoll:" not in str(error):
        return
    from plimsoll import _sessions  # the sessions import this module

    mended = BudgetExceededError(str(error))
    report = _sessions.shortage()
    if report is not None:
        mended.budget_bytes = report.budget_bytes
        mended.minimum_budget_bytes = report.shortage_bytes
        mended.pinned_by = report.shortage_op
    raise mended from error
