# SPDX-License-Identifier: Apache-2.0
"""What a step function touches: found through its closure, put back, and told apart by its bits."""

from __future__ import annotations

import copy
import functools
import hashlib
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

_NUMBERS = (int, float, complex, str, bytes, bool, type(None))


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


class Touched:
    """The modules, optimizers, tensors, lists and counters that a function can reach.

    Followed: closures, defaults, globals named in its code, bound objects, partials, containers and
    attributes. An iterator or generator cannot be put back and is not followed.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.modules: dict[str, torch.nn.Module] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.holders: dict[str, Any] = {}  # optimizers, schedulers, scalers: state_dict and back
        self._cells: list[types.CellType] = []
        self._containers: list[Any] = []
        self._seen: set[int] = set()
        self._keep: list[Any] = []  # ids stay unique while what they name lives
        self._follow(function, "step")

    def _follow(self, value: Any, path: str) -> None:
        if isinstance(value, (*_NUMBERS, type, types.ModuleType)) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._keep.append(value)
        if isinstance(value, torch.nn.Module):
            self.modules[path] = value
        elif isinstance(value, torch.Tensor):
            self.tensors[path] = value
        elif isinstance(value, types.FunctionType):
            self._follow_function(value, path)
        elif isinstance(value, types.MethodType):
            self._follow(value.__self__, path)
            self._follow(value.__func__, path)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._follow(part, path)
        elif isinstance(value, (list, tuple, set)):
            if not isinstance(value, tuple):
                self._containers.append(value)
            for i, entry in enumerate(value):
                self._follow(entry, f"{path}[{i}]")
        elif isinstance(value, dict):
            self._containers.append(value)
            for key, entry in list(value.items()):
                self._follow(entry, f"{path}.{key}")
        elif hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            self.holders[path] = value
        elif type(value).__module__.split(".")[0] not in ("torch", "builtins") and hasattr(value, "__dict__"):
            self._containers.append(value.__dict__)
            for key, entry in list(vars(value).items()):
                self._follow(entry, f"{path}.{key}")

    def _follow_function(self, function: types.FunctionType, path: str) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if id(cell) in self._seen:
                continue
            self._seen.add(id(cell))
            self._keep.append(cell)
            self._cells.append(cell)
            try:
                self._follow(cell.cell_contents, name)
            except ValueError:  # an empty cell
                continue
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._follow(value, path)
        if function.__module__ is not None and function.__module__.split(".")[0] in ("torch", "plimsoll"):
            return
        for name in set(_names_in(function.__code__)):
            if name in function.__globals__:
                self._follow(function.__globals__[name], name)

    def all_tensors(self) -> dict[str, torch.Tensor]:
        """Returns parameters, buffers and other tensors by name, each once."""
        named = dict(self.tensors)
        for path, module in self.modules.items():
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                named[f"{path}.{name}"] = tensor
        unique: dict[int, str] = {}
        for name, tensor in named.items():
            unique.setdefault(id(tensor), name)
        return {name: named[name] for name in unique.values()}

    def persistent_bytes(self) -> int:
        """Returns the bytes of all distinct storages, each rounded up to 64."""
        storages: dict[int, int] = {}

        def add(value: Any) -> None:
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                storage = value.untyped_storage()
                storages[storage._cdata] = (storage.nbytes() + 63) // 64 * 64
            elif isinstance(value, dict):
                for entry in value.values():
                    add(entry)
            elif isinstance(value, (list, tuple)):
                for entry in value:
                    add(entry)

        for tensor in self.all_tensors().values():
            add(tensor)
            if tensor.is_leaf:
                add(tensor.grad)
        for holder in self.holders.values():
            add(holder.state_dict())
        return sum(storages.values())


class Snapshot:
    """All that a function touches, as it was. ``restore`` puts it back, as often as wanted."""

    def __init__(self, touched: Touched) -> None:
        self._values = {name: (tensor, tensor.detach().clone(), _clone(tensor.grad) if tensor.is_leaf else None)
                        for name, tensor in touched.all_tensors().items()}
        self._holders = [(holder, copy.deepcopy(holder.state_dict())) for holder in touched.holders.values()]
        self._cells = [(cell, cell.cell_contents) for cell in touched._cells
                       if _is_set(cell) and isinstance(cell.cell_contents, _NUMBERS)]
        self._containers = [(container, copy.copy(container)) for container in touched._containers]
        self._generators = (torch.get_rng_state(), random.getstate())

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, value, gradient in self._values.values():
                tensor.copy_(value)
                if tensor.is_leaf:
                    tensor.grad = _clone(gradient)
        for container, entries in self._containers:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(entries)
        for holder, state in self._holders:
            holder.load_state_dict(copy.deepcopy(state))
        for cell, number in self._cells:
            cell.cell_contents = number
        torch.set_rng_state(self._generators[0])
        random.setstate(self._generators[1])


def _clone(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()


def _is_set(cell: types.CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def bits(value: Any, path: str, into: dict[str, str]) -> None:
    """Adds a digest of each tensor and number in a value to ``into``, by path."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        plain = plain.to_dense() if plain.layout is not torch.strided else plain
        plain = plain.resolve_conj().resolve_neg().contiguous()
        digest = hashlib.blake2b(plain.flatten().view(torch.uint8).numpy().tobytes(), digest_size=16)
        into[path] = f"{value.dtype} {tuple(value.shape)} {digest.hexdigest()}"
    elif isinstance(value, dict):
        for key, entry in value.items():
            bits(entry, f"{path}.{key}", into)
    elif isinstance(value, (list, tuple)):
        for i, entry in enumerate(value):
            bits(entry, f"{path}[{i}]", into)
    elif isinstance(value, _NUMBERS):
        into[path] = repr(value)


def bits_of(touched: Touched, returned: list[Any]) -> dict[str, str]:
    """Returns digests of all that a run returned and left behind."""
    found: dict[str, str] = {}
    for i, value in enumerate(returned):
        bits(value, f"what step {i} returned", found)
    for name, tensor in touched.all_tensors().items():
        bits(tensor, name, found)
        if tensor.is_leaf and tensor.grad is not None:
            bits(tensor.grad, f"gradient of {name}", found)
    for path, holder in touched.holders.items():
        bits(holder.state_dict(), path, found)
    bits(torch.get_rng_state(), "the generator", found)
    return found


def first_difference(expected: dict[str, str], actual: dict[str, str]) -> str:
    """Returns what differs first, as a sentence, or "" where nothing does."""
    for name in (*expected, *actual):
        if expected.get(name) != actual.get(name):
            missing = "is missing" if name not in actual else "is new" if name not in expected else "differs"
            return f"{name} {missing}"
    return ""
