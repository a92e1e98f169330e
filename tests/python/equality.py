# SPDX-License-Identifier: Apache-2.0
"""Runs a program stock and inside a budget, and says whether anything differs, bit for bit."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import torch

import plimsoll


@dataclasses.dataclass
class Program:
    """A program to compare. ``step`` returns what is to be compared each time, ``state`` at the end."""

    step: Callable[[], Any]
    state: Callable[[], Any]
    evaluate: Callable[[], Any] | None = None
    #: A step is a whole loop of somebody else's: its optimizer's steps are the session's.
    drives_itself: bool = False


Make = Callable[[], Program]


def frozen(value: Any) -> Any:
    """Returns a copy of a value, tensors as (type, shape, bytes), that a session cannot change."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.layout is not torch.strided:
            value = value.to_dense()
        if value.is_quantized:
            value = value.int_repr()
        if value.is_nested:
            value = value.to_padded_tensor(0)
        value = value.resolve_conj().resolve_neg().contiguous().clone()
        return (str(value.dtype), tuple(value.shape), value.flatten().view(torch.uint8).numpy(force=True).tobytes())
    if isinstance(value, dict):
        return {key: frozen(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [frozen(entry) for entry in value]
    return value


def first_difference(expected: Any, actual: Any, path: str = "result") -> str:
    """Returns where two frozen values differ first, or "" where they are equal."""
    if type(expected) is not type(actual):
        return f"{path}: {type(expected).__name__} against {type(actual).__name__}"
    if isinstance(expected, dict):
        if expected.keys() != actual.keys():
            return f"{path}: keys {sorted(map(str, expected))} against {sorted(map(str, actual))}"
        pairs = [(f"{path}.{key}", expected[key], actual[key]) for key in expected]
    elif isinstance(expected, list):
        if len(expected) != len(actual):
            return f"{path}: {len(expected)} entries against {len(actual)}"
        pairs = [(f"{path}[{i}]", e, a) for i, (e, a) in enumerate(zip(expected, actual))]
    elif expected != actual and not (expected != expected and actual != actual):
        return f"{path} differs"
    else:
        return ""
    for name, one, other in pairs:
        problem = first_difference(one, other, name)
        if problem:
            return problem
    return ""


def model_state(model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> dict[str, Any]:
    """Returns all a training step changes: parameters, buffers, gradients, optimizer, generator."""
    return {
        "model": dict(model.state_dict(keep_vars=True)),
        "gradients": {name: p.grad for name, p in model.named_parameters()},
        "optimizers": [o.state_dict() for o in optimizers],
        "generator": torch.get_rng_state(),
    }


def run_stock(make: Make, steps: int) -> tuple[Any, int]:
    """Runs a program as it is. Returns all its frozen results and its peak in bytes."""
    plimsoll.install_allocator()
    torch.manual_seed(1)
    gc.collect()  # what earlier tests left would be freed in between
    before = plimsoll.allocator_report().live_bytes
    program = make()
    plimsoll.reset_allocator_statistics()
    results = [frozen(program.step()) for _ in range(steps)]
    peak = plimsoll.allocator_report().peak_bytes - before
    if program.evaluate is not None:
        results.append(frozen(program.evaluate()))
    return [results, frozen(program.state())], peak


def run_inside(make: Make, steps: int, budget: int) -> tuple[Any, plimsoll.Report]:
    """Runs a program inside a budget, given in bytes. Returns its frozen results and the report."""
    torch.manual_seed(1)
    program = make()
    with plimsoll.session(budget) as session:
        results = []
        for _ in range(steps):
            with session.steps_by_optimizer() if program.drives_itself else session.step():
                result = program.step()
            results.append(frozen(result))
        if program.evaluate is not None:
            with session.step():
                result = program.evaluate()
            results.append(frozen(result))
        report = session.report()
    return [results, frozen(program.state())], report


def assert_equals_stock(make: Make, share: float = 0.5, steps: int = 3) -> plimsoll.Report:
    """Runs a program at a share of its stock peak: all results equal, the budget held, bytes moved."""
    expected, peak = run_stock(make, steps)
    budget = int(peak * share)
    actual, report = run_inside(make, steps, budget)
    assert first_difference(expected, actual) == ""
    assert report.peak_bytes <= budget
    assert report.offloaded_bytes + report.prefetched_bytes > 0, "the budget never pressed"
    return report
