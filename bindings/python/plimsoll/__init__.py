# SPDX-License-Identifier: Apache-2.0
"""Trains PyTorch models inside a fixed memory budget, bit for bit as stock PyTorch would.

    import plimsoll

    with plimsoll.session(budget="4GiB") as session:
        for x, y in loader:
            with session.step():
                ...                       # an unchanged PyTorch step
    print(session.report())
"""

import ctypes
import importlib.util
from pathlib import Path

import torch

from plimsoll import _built_with

if torch.__version__.split("+")[0].split(".")[:2] != _built_with.TORCH.split(".")[:2]:
    raise ImportError(
        f"plimsoll {_built_with.VERSION} was built for torch {_built_with.TORCH} and torch "
        f"{torch.__version__} is installed: reinstall plimsoll (pip install --force-reinstall), which "
        "builds it for the torch that is there")

# In site-packages the extension finds the solver beside itself; installed elsewhere (--target) it is
# found by having been loaded.
_highs = importlib.util.find_spec("highsbox")
if _highs is not None and _highs.submodule_search_locations:
    for _library in sorted(Path(_highs.submodule_search_locations[0]).glob("highs_dist/lib/libhighs.so*"))[:1]:
        ctypes.CDLL(str(_library), mode=ctypes.RTLD_GLOBAL)

from plimsoll import _native
from plimsoll._compare import Comparison, ComparisonRow, compare
from plimsoll._native import format_size, mark_step, reset_allocator_statistics
from plimsoll._planners import explain, layout, schedule
from plimsoll._sessions import (Session, allocator_report, install_allocator, record_memory_history,
                                save_memory_snapshot, session)
from plimsoll.errors import (BudgetExceededError, InternalError, InvalidArgumentError, PlimsollError,
                             SpillError, UnsupportedError)
from plimsoll.reports import AllocatorReport, Report

__version__ = _built_with.VERSION
__all__ = [
    "AllocatorReport", "BudgetExceededError", "Comparison", "ComparisonRow", "InternalError",
    "InvalidArgumentError", "PlimsollError", "Report", "Session", "SpillError", "UnsupportedError",
    "allocator_report", "compare", "explain", "format_size", "install_allocator", "layout", "mark_step",
    "record_memory_history", "reset_allocator_statistics", "save_memory_snapshot", "schedule", "session",
]
