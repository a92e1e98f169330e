# SPDX-License-Identifier: Apache-2.0
"""What sessions and the allocator say of themselves."""

from __future__ import annotations

import dataclasses

from plimsoll import _native

__all__ = ["AllocatorReport", "Report"]


def _show(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value:>16,}   {_native.format_size(value) if value > 0 else '0'}"
    if isinstance(value, int):
        return f"{value:>16,}"
    return str(value)


def as_table(report: object) -> str:
    """Returns the fields of a dataclass as aligned lines; empty texts are left out."""
    rows = [(f.name, getattr(report, f.name)) for f in dataclasses.fields(report)]  # type: ignore[arg-type]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {_show(name, value)}" for name, value in rows if value != "")


@dataclasses.dataclass(frozen=True)
class Report:
    """What a session did. Bytes are exact; the keys are those of the command line's JSON.

    Prints as a table.
    """

    budget_bytes: int = 0
    #: Since the session began; never above the budget.
    peak_bytes: int = 0
    #: Of these, what rounding up to the alignment took.
    peak_waste_bytes: int = 0
    peak_op: str = ""
    #: What is alive between steps: parameters, gradients kept, optimizer state, buffers.
    persistent_bytes: int = 0
    #: The largest operator's distinct bytes: no budget below it can work. 0 before a first step.
    lower_bound_bytes: int = 0
    pinned_by: str = ""
    #: Storages that cannot be moved (from NumPy, shared memory), counted in the budget.
    foreign_bytes: int = 0
    #: Moved in the last step.
    offloaded_bytes: int = 0
    prefetched_bytes: int = 0
    slid_bytes: int = 0
    #: What the plan for the last step moves; 0 where there is no plan.
    planned_bytes: int = 0
    #: What the host and file tiers hold now.
    host_bytes: int = 0
    file_bytes: int = 0
    steps: int = 0
    #: Steps that followed a known sequence of operators to their end.
    steps_on_sequence: int = 0
    #: Counted apart where lifetimes differ.
    known_sequences: int = 0
    #: Steps whose moves were planned; each costs time once.
    plans_made: int = 0
    #: In the last step, views not counted.
    operators: int = 0
    #: Set when a request did not fit: what the failing operator needs in all, at least.
    shortage_bytes: int = 0
    shortage_op: str = ""

    def __str__(self) -> str:
        return as_table(self)

    def as_dict(self) -> dict[str, int | str]:
        """Returns the fields by name, as in the command line's JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class AllocatorReport:
    """What LibTorch's CPU allocator took since ``install_allocator``. Prints as a table."""

    limit_bytes: int = 0
    live_bytes: int = 0
    live_blocks: int = 0
    peak_bytes: int = 0
    peak_op: str = ""
    #: Requests answered with an out-of-memory error.
    refused: int = 0
    forward_live_bytes: int = 0
    forward_allocated_bytes: int = 0
    forward_allocations: int = 0
    backward_live_bytes: int = 0
    backward_allocated_bytes: int = 0
    backward_allocations: int = 0
    outside_live_bytes: int = 0
    outside_allocated_bytes: int = 0
    outside_allocations: int = 0

    def __str__(self) -> str:
        return as_table(self)
