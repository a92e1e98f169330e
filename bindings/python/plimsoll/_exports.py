# SPDX-License-Identifier: Apache-2.0
"""Ways out of PyTorch by which a raw address escapes, watched while a session lives.

A session moves bytes. An address that was taken by ``numpy()`` or DLPack would go stale with the
next move, silently, so what such a call exports is pinned for as long as the export lives; calls
that read bytes without an operator pin for their own duration.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch

from plimsoll import _native

if TYPE_CHECKING:
    from plimsoll._sessions import Session

# These read or write bytes themselves, and keep no address.
_TENSOR_CALLS = ("tolist", "apply_", "map_", "map2_")
_STORAGE_CALLS = ("tolist", "__getitem__", "__setitem__", "_write_file", "byteswap", "fill_",
                  "copy_", "_set_from_file", "is_pinned", "_share_fd_cpu_", "_share_filename_cpu_")
_MISSING = object()
_NAMES = ("__name__", "__qualname__", "__doc__")


# What marks this thread's operators for the session.
_KEY = cast(torch._C.DispatchKey, torch._C._parse_dispatch_key("Fake"))


_guards: PointerGuards | None = None
_arrays: dict[int, tuple[Any, list[_native.ExportPin | _native.ArrayHold]]] = {}


def watch_arrays() -> None:
    """Replaces Tensor.numpy for the rest of the process by one that knows when its arrays end.

    Stock makes a storage that was shown to NumPy once unresizable for good, and what cannot be
    resized is not moved; a session that starts later has to know whether an array is still there.
    """
    original = torch.Tensor.numpy

    def numpy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        storage = _storage_of(tensor)
        if storage is None:
            return original(tensor, *args, **kwargs)
        guards = _guards
        pin = guards._pin(storage) if guards is not None else None
        holds: list[_native.ExportPin | _native.ArrayHold] = [_native.ArrayHold(storage), *([pin] if pin else [])]
        try:
            array = original(tensor, *args, **kwargs)
        except BaseException:
            for hold in holds:
                hold.release()
            raise
        key = id(holds)

        # Views of the array keep it alive as their base, so its end is the end of the export.
        def ended(_: object) -> None:
            for hold in _arrays.pop(key)[1]:
                hold.release()

        _arrays[key] = (weakref.ref(array, ended), holds)
        return array

    torch.Tensor.numpy = functools.update_wrapper(numpy, original, _NAMES, ())  # type: ignore[assignment, method-assign]


class PointerGuards:
    """Replaces methods of PyTorch's classes while a session is open, and puts them back."""

    def __init__(self, session: Session) -> None:
        self._originals: list[tuple[Any, str, Any]] = []
        self._lent: list[_native.ExportPin] = []  # by data_ptr(), until the next step's begin or end
        self._saving = False
        # A session that ends without its `with` (an interrupt just after it began) ends here.
        self._session = weakref.ref(session, lambda _: self.remove())

    def install(self) -> None:
        global _guards
        _guards = self
        self._replace(torch.Tensor, "data_ptr", self._data_ptr)
        self._replace(torch.Tensor, "__dlpack__", self._exported_for_good)
        self._replace(torch.utils.dlpack, "to_dlpack", self._exported_for_good)
        for name in _TENSOR_CALLS:
            self._replace(torch.Tensor, name, self._during_call)
        self._replace(torch.UntypedStorage, "data_ptr", self._storage_data_ptr)
        for name in _STORAGE_CALLS:
            if hasattr(torch.UntypedStorage, name):
                self._replace(torch.UntypedStorage, name, self._storage_during_call)
        self._replace(torch, "save", self._save)
        self._replace(torch, "compile", self._compile)
        self._let_higher_order_operators_pass()
        if "torch._dynamo" in sys.modules:
            self._watch_compiled_code()

    def _watch_compiled_code(self) -> None:
        # What runs inside cannot be seen: a call is one operator.
        from torch._inductor.output_code import CompiledFxGraph

        if not any(owner is CompiledFxGraph for owner, *_ in self._originals):
            self._replace(CompiledFxGraph, "__call__", self._compiled_call)

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            self._watch_compiled_code()
            return original(*args, **kwargs)

        return compile

    def _compiled_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(graph: Any, inputs: Any) -> Any:
            session = self._session()
            if session is None or not session.is_in_step:
                return original(graph, inputs)
            operands = [entry for entry in inputs if isinstance(entry, torch.Tensor)]
            name = f"compiled::{graph.cache_key or 'graph'}"
            return session._run_opaque(name, operands, lambda: original(graph, inputs))

        return call

    def _let_higher_order_operators_pass(self) -> None:
        # Those in Python look their kernel up by the highest key, and have none for the session's.
        defaults = torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
        for owner, name, value in [
                (torch._ops, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", [*defaults, _KEY]),
                *((operator, "non_fallthrough_keys", operator.non_fallthrough_keys.remove(_KEY))
                  for operator in torch._ops._higher_order_ops.values())]:
            self._originals.append((owner, name, getattr(owner, name)))
            setattr(owner, name, value)

    def remove(self) -> None:
        """Puts everything back. May be interrupted and called again."""
        global _guards
        if _guards is self:
            _guards = None
        while self._originals:
            owner, name, original = self._originals[-1]
            if original is not _MISSING:
                setattr(owner, name, original)
            elif name in vars(owner):
                delattr(owner, name)
            self._originals.pop()
        self._lent.clear()

    def at_step_boundary(self) -> None:
        """Takes back what data_ptr() lent: an address is good until the next step."""
        self._lent.clear()

    def _replace(self, owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        own = vars(owner).get(name, _MISSING)
        original = getattr(owner, name)
        replacement = functools.update_wrapper(wrap(original), original, _NAMES, ())
        self._originals.append((owner, name, own))
        setattr(owner, name, replacement)

    def _pin(self, exported: torch.Tensor | torch.UntypedStorage) -> _native.ExportPin | None:
        session, storage = self._session(), _storage_of(exported)
        if session is None or storage is None or not session.is_open or not session._holds(storage):
            return None
        return _native.ExportPin(session, storage)

    def _during_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            pin = self._pin(tensor)
            try:
                return original(tensor, *args, **kwargs)
            finally:
                if pin is not None:
                    pin.release()

        return call

    def _storage_during_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
            operands = [s for s in (storage, *args) if isinstance(s, torch.UntypedStorage)]
            pins = [self._pin(s) for s in operands]
            try:
                return original(storage, *args, **kwargs)
            finally:
                for pin in pins:
                    if pin is not None:
                        pin.release()

        return call

    def _exported_for_good(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def export(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            session = self._session()
            storage = _storage_of(tensor)
            if session is not None and session.is_open and storage is not None:
                # The consumer's end cannot be seen from here: pinned as long as the storage lives.
                session._pin_for_good(storage)
            return original(tensor, *args, **kwargs)

        return export

    def _data_ptr(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def data_ptr(tensor: torch.Tensor) -> Any:
            pin = self._pin(tensor)
            if pin is not None:
                self._lent.append(pin)
            return original(tensor)

        return data_ptr

    def _storage_data_ptr(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def data_ptr(storage: torch.UntypedStorage) -> Any:
            if self._saving:
                # Serialisation compares addresses only, and there may be no room for all at once.
                return storage._cdata
            pin = self._pin(storage)
            if pin is not None:
                self._lent.append(pin)
            return original(storage)

        return data_ptr

    def _save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        guards = self
        plain_writer = torch._C.PyTorchFileWriter

        class Writer(plain_writer):  # type: ignore[misc, valid-type]
            def write_record(self, name: str, data: Any, size: int) -> None:
                pin = guards._pin(data) if isinstance(data, torch.UntypedStorage) else None
                try:
                    super().write_record(name, data, size)
                finally:
                    if pin is not None:
                        pin.release()

        def save(*args: Any, **kwargs: Any) -> Any:
            torch._C.PyTorchFileWriter = Writer  # type: ignore[misc]
            guards._saving = True
            try:
                return original(*args, **kwargs)
            finally:
                guards._saving = False
                torch._C.PyTorchFileWriter = plain_writer  # type: ignore[misc]

        return save


def _storage_of(exported: torch.Tensor | torch.UntypedStorage) -> torch.UntypedStorage | None:
    """Returns the bytes behind a tensor or storage, where they can be pinned."""
    if isinstance(exported, torch.UntypedStorage):
        return exported if exported.device.type == "cpu" else None
    if exported.layout is not torch.strided or exported.device.type != "cpu" or exported.is_nested:
        return None
    return exported.untyped_storage()
