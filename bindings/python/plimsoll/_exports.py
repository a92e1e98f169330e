# SPDX-License-Identifier: Apache-2.0
"""Ways out of PyTorch by which a raw address escapes, watched while a session lives.

A session moves bytes. An address that was taken by ``numpy()`` or DLPack would go stale with the
next move, silently, so what such a call exports is pinned for as long as the export lives; calls
that read bytes without an operator pin for their own duration.
"""

from __future__ import annotations

import functools
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


class PointerGuards:
    """Replaces methods of PyTorch's classes while a session is open, and puts them back."""

    def __init__(self, session: Session) -> None:
        self._originals: list[tuple[Any, str, Any]] = []
        self._lent: list[_native.ExportPin] = []  # by data_ptr(), until the next step's begin or end
        self._arrays: dict[int, tuple[Any, _native.ExportPin]] = {}
        self._saving = False
        # A session that ends without its `with` (an interrupt just after it began) ends here.
        self._session = weakref.ref(session, lambda _: self.remove())

    def install(self) -> None:
        self._replace(torch.Tensor, "numpy", self._numpy)
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
        self._let_higher_order_operators_pass()

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

    def _numpy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def numpy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            pin = self._pin(tensor)
            if pin is None:
                return original(tensor, *args, **kwargs)
            try:
                array = original(tensor, *args, **kwargs)
            except BaseException:
                pin.release()
                raise
            # Views of the array keep it alive as their base, so its end is the end of the export.
            key = id(pin)

            def ended(_: object) -> None:
                _, released = self._arrays.pop(key)
                released.release()

            self._arrays[key] = (weakref.ref(array, ended), pin)
            return array

        return numpy

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
