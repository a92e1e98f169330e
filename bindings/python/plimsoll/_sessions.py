# SPDX-License-Identifier: Apache-2.0
"""Sessions: an unchanged PyTorch loop inside a hard budget."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from plimsoll import _exports, _native
from plimsoll.errors import InvalidArgumentError, UnsupportedError
from plimsoll.reports import AllocatorReport, Report

P = ParamSpec("P")
R = TypeVar("R")

_LEVELS = ("auto", "allocator", "eager", "planned", "guided", "captured")
_open: weakref.ref[Session] | None = None


def size_bytes(size: int | str, flag: str) -> int:
    """Returns a size such as 4096 or "1.5GiB" in bytes. ``flag`` names its origin in errors."""
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise InvalidArgumentError(f"{flag}: {size!r} is no size; write bytes as an int, or a text "
                                   "such as '4GiB'")
    if isinstance(size, str) and (size.strip().endswith(("%", "%a")) or size in ("min", "none")):
        raise InvalidArgumentError(
            f"{flag}: {size!r} depends on what stock PyTorch needs, which a session cannot know; "
            "plimsoll.compare(step, budgets=[...]) measures it, a session wants bytes ('4GiB')")
    if isinstance(size, int):
        if size <= 0:
            raise InvalidArgumentError(f"{flag}: {size} bytes; write a positive size")
        return size
    return _native.parse_size(size, flag)


def _check_device(device: str | torch.device | None) -> None:
    if device is None or torch.device(device).type == "cpu":
        return
    raise UnsupportedError(f"session: device {str(device)!r} is not held by sessions of this "
                           "release; leave device out for the CPU's memory")


def _strided_storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    if tensor.layout is not torch.strided:
        raise InvalidArgumentError(f"session: a tensor of layout {tensor.layout} has no storage of its own; "
                                   "name its parts, such as tensor.values()")
    return tensor.untyped_storage()


class Session(_native.SessionCore):
    """A hard budget over the PyTorch code of one thread. Made by ``plimsoll.session``."""

    def __init__(self, budget: int | str, *, level: str = "auto", device: str | torch.device | None = None,
                 host_limit: int | str | None = None, spill: str | os.PathLike[str] | None = None,
                 strict_pointers: bool = False, record_events: bool = False) -> None:
        if level not in _LEVELS:
            raise InvalidArgumentError(f"session: level is {level!r}; write one of {', '.join(_LEVELS)}")
        if level in ("planned", "guided", "captured"):
            raise UnsupportedError(f"session: level {level!r} is not to be had from Python in this "
                                   "release; 'auto' takes the best there is")
        if level == "allocator":
            raise InvalidArgumentError("session: level 'allocator' has no steps; call "
                                       "plimsoll.install_allocator(limit=...) in place of a session")
        _check_device(device)
        self._arguments: dict[str, Any] = {
            "budget": budget, "level": level, "device": device, "host_limit": host_limit,
            "spill": spill, "strict_pointers": strict_pointers, "record_events": record_events}
        super().__init__(
            budget_bytes=size_bytes(budget, "session: budget"),
            host_limit_bytes=None if host_limit is None else size_bytes(host_limit, "session: host_limit"),
            spill_folder="" if spill is None else os.fspath(spill),
            strict_pointers=strict_pointers, record_events=record_events)
        self._guards = _exports.PointerGuards(self)

    def _entered(self) -> None:
        global _open
        self._guards.install()
        _open = weakref.ref(self)

    def _leaving(self) -> None:
        global _open
        self._guards.remove()
        if _open is not None and _open() is self:
            _open = None

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Runs a function inside a session of its own, made anew for each call."""

        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with Session(**self._arguments):
                return function(*args, **kwargs)

        return inside

    def step(self) -> _native.StepContext:
        """Returns the extent of one training or evaluation step, for ``with``.

        Errors: a step inside of a step, and a step on another thread than the session's, raise
        InvalidArgumentError when they begin. What does not fit raises BudgetExceededError, a
        ``torch.OutOfMemoryError``, when the step ends by it; every tensor keeps its value.
        """
        self._guards.at_step_boundary()
        return self._step()

    @contextlib.contextmanager
    def steps_by_optimizer(self) -> Iterator[None]:
        """Makes each ``optimizer.step()`` of this thread end a step, for loops that are not yours.

            with plimsoll.session("4GiB") as session, session.steps_by_optimizer():
                trainer.train()

        What comes after the last one, until the end of ``with``, teaches the session nothing.
        """
        owner, step = threading.get_ident(), self.step()
        step.__enter__()

        def boundary(*_: Any) -> None:
            nonlocal step
            if threading.get_ident() != owner:
                return
            step.__exit__(None, None, None)
            step = self.step()
            step.__enter__()

        hook = register_optimizer_step_post_hook(boundary)
        try:
            yield
        finally:
            hook.remove()
            step.abandon()

    def report(self) -> Report:
        """Returns the session's figures up to now; also after it has ended. Cost: microseconds."""
        return Report(**self._report())

    def pin(self, tensor: torch.Tensor) -> None:
        """Brings the tensor's bytes in and keeps them at one address until ``unpin``. Counted."""
        self._pin(_strided_storage(tensor))

    def unpin(self, tensor: torch.Tensor) -> None:
        """Takes one ``pin`` back."""
        self._unpin(_strided_storage(tensor))

    def pause(self) -> _native.PauseContext:
        """Returns a stretch between steps, for ``with``, in which operators run as stock and unseen.

        For measuring beside stock. Tensors the session holds must not be touched in it.
        """
        return self._pause()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Says whether the session has taken the tensor's storage over, resident or not."""
        return self._holds(_strided_storage(tensor))

    def reset_peak(self) -> None:
        """Makes ``peak_bytes`` start from what is resident now."""
        self._reset_peak()

    def events(self) -> list[tuple[str, str, int, int, int]]:
        """Returns the last step's operators and moves, where ``record_events`` was asked for.

        Each is (kind, name, begin in ns, end in ns, bytes), kind being operator, evict or fetch.
        """
        return self._events()

    def moved_lower_bound_bytes(self) -> int:
        """Returns the least bytes any schedule has to move per step at this budget."""
        return self._moved_lower_bound_bytes()


def session(budget: int | str, *, level: str = "auto", device: str | torch.device | None = None,
            host_limit: int | str | None = None, spill: str | os.PathLike[str] | None = None,
            strict_pointers: bool = False, record_events: bool = False) -> Session:
    """Returns a hard budget for the PyTorch code inside ``with``, or of the function it decorates.

    budget: bytes, or a text such as "4GiB". Storages that operators of a step touch, their scratch
    and what cannot be moved stay within it at every moment.
    level: "auto" or "eager". host_limit: what evicted bytes may take of host memory, beyond which
    they go to files in the folder ``spill``. strict_pointers: raw pointers of tensors the session
    holds raise outside of operators unless pinned. record_events: keeps the last step's operators
    and moves for ``events()``.

    Threads: one; other threads' tensors are untouched. One session in a process at a time; a second
    is refused with InvalidArgumentError. A child made by fork has none.
    Errors: InvalidArgumentError (a ValueError), UnsupportedError, SpillError (an OSError),
    BudgetExceededError (a torch.OutOfMemoryError).
    """
    return Session(budget, level=level, device=device, host_limit=host_limit, spill=spill,
                   strict_pointers=strict_pointers, record_events=record_events)


def current() -> Session | None:
    """Returns the session that is open in this process, if one is."""
    return _open() if _open is not None else None


def shortage() -> Report | None:
    """Returns the open session's report where a request has not fitted."""
    open_session = current()
    if open_session is None:
        return None
    report = open_session.report()
    return report if report.shortage_bytes > 0 else None


def install_allocator(limit: int | str | None = None, *, attribute: bool = True, plan: bool = False) -> None:
    """Makes Plimsoll PyTorch's CPU allocator for the rest of the process; a second call changes it.

    limit: bytes that may be live at once, as an int or a text such as "4GiB"; None for no limit.
    Over it a request raises torch.OutOfMemoryError and nothing changes. Counts what is allocated
    from now on, so call it early. attribute: name the operator behind each allocation (about 0.2 us
    an operator). plan: place allocations by plan once ``mark_step`` has shown a repeating step.
    """
    limit_bytes = 0 if limit is None else size_bytes(limit, "install_allocator: limit")
    _native.install_allocator(limit_bytes=limit_bytes, attribute=attribute, plan=plan)


def allocator_report() -> AllocatorReport:
    """Returns the account since ``install_allocator``; zeros before it."""
    return AllocatorReport(**_native.allocator_statistics())


def record_memory_history(most_events: int = 100_000) -> None:
    """Writes down what the CPU allocator gives out and takes back from now on, after ``install_allocator``.

    The newest most_events are kept; 0 stops and forgets.
    """
    if not 0 <= most_events <= 2**32:
        raise InvalidArgumentError(f"record_memory_history: most_events is {most_events}; write 0 to 2**32")
    _native.record_memory_history(most_events)


def save_memory_snapshot(path: str | os.PathLike[str]) -> None:
    """Writes what was recorded as a PyTorch memory snapshot, for its viewer and for ``plimsoll explain``."""
    snapshot = _native.memory_snapshot()
    with open(path, "wb") as file:
        file.write(snapshot)


def _after_fork() -> None:
    global _open
    inherited = current()
    if inherited is None:
        return
    inherited._guards.remove()
    inherited._abandon_in_child()
    _open = None


_exports.watch_arrays()
os.register_at_fork(after_in_child=_after_fork)
