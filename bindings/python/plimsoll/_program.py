# SPDX-License-Identifier: Apache-2.0
"""The command line that comes with the package, and its JSON as values."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from plimsoll.errors import (BudgetExceededError, InternalError, InvalidArgumentError, PlimsollError,
                             SpillError)

_ERRORS: dict[int, type[PlimsollError]] = {
    2: InvalidArgumentError, 3: BudgetExceededError, 4: SpillError, 70: InternalError}


def path() -> str:
    """Returns the program's file."""
    return str(Path(__file__).parent / "plimsoll")


def environment() -> dict[str, str]:
    """Returns this process's environment, with which the program finds its libraries."""
    folders = []
    for package, below in (("torch", "lib"), ("highsbox", "highs_dist/lib")):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            folders.append(str(Path(spec.submodule_search_locations[0]) / below))
    known = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join([*folders, *([known] if known else [])])}


def run(command: str, *arguments: str) -> dict[str, Any]:
    """Runs one command and returns its JSON. A check that failed (exit code 1) is a result too.

    Errors: the exit codes of the command line as exceptions; Ctrl-C ends the command.
    """
    done = subprocess.run([path(), command, *arguments, "--json", "-", "--quiet"], env=environment(),
                          capture_output=True, text=True, check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in (0, 1):
        kind = _ERRORS.get(done.returncode, InternalError)
        error = kind(done.stderr.strip() or f"plimsoll {command} ended with {done.returncode}")
        if isinstance(error, BudgetExceededError):
            figures = json.loads(done.stdout)
            error.budget_bytes = figures["budget_bytes"]
            error.minimum_budget_bytes = figures["minimum_budget_bytes"]
            error.pinned_by = figures["pinned_by"]
        raise error
    result: dict[str, Any] = json.loads(done.stdout)
    return result
