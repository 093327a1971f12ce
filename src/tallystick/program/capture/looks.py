"""What Python sees of a value, so that two moments can be compared; also of iterators and
generators, which Python itself cannot take back (PROGRAM 5.19).
"""

from __future__ import annotations

import array
import contextvars
import ctypes
import hashlib
import io
import os
import random
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.program.capture.recorded import plain


def is_iterator(value: Any) -> bool:
    """Whether `value` goes on at every `next`, and is of no class of the person's."""
    if not isinstance(value, Iterator) or isinstance(value, (io.IOBase, Relay)):
        return False
    return not isinstance(getattr(type(value), "__next__", None), types.FunctionType)


class Relay:
    """In the place of an iterator or a generator: it can be taken back to an earlier position."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator
        self.position = 0
        self.log: list[tuple[Any, bool, Any]] = []  # what was sent, whether it raised, the result

    def _step(self, sent: Any, run: Any) -> Any:
        if self.position == len(self.log):
            try:
                self.log.append((sent, False, run()))
            except Exception as error:
                self.log.append((sent, True, error))
        known, raised, result = self.log[self.position]
        if known is not sent and known != sent:
            raise RuntimeError("A generator was sent something else than before.")
        self.position += 1
        if raised:
            raise result
        return result

    def __iter__(self) -> Relay:
        return self

    def __next__(self) -> Any:
        return self._step(None, lambda: next(self.iterator))

    def send(self, value: Any) -> Any:
        return self._step(value, lambda: self.iterator.send(value))

    def close(self) -> None:
        self.iterator.close()


PLAIN = (bool, int, float, complex, str, bytes, type(None))
BYTES = (bytearray, array.array, memoryview, ctypes._SimpleCData, ctypes.Structure, ctypes.Array)
_TOLD_AT_ONCE = frozenset({bool, int, float, complex, type(None)})
_DEPTH = 5
_LONG = 4096
_MOST_BYTES = 1 << 26  # a larger array is told by its first and last bytes


def _digest(content: bytes | memoryview) -> Any:
    if len(content) > _MOST_BYTES:
        half = _MOST_BYTES // 2
        content = bytes(content[:half]) + bytes(content[-half:])
    return hashlib.sha256(content).digest() if len(content) > 64 else bytes(content)


def _name_of(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


def _own_state(value: Any) -> Any:
    """What an object of C code holds, or None where it does not say."""
    if isinstance(value, np.ndarray):
        whole = value if value.dtype != object else np.zeros(0)
        held: Any = np.ascontiguousarray(whole)
        return value.dtype.str, value.shape, _digest(memoryview(held).cast("B"))
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False))
    if isinstance(value, random.Random):
        return hash(value.getstate())
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, Relay):
        return value.position
    if isinstance(value, BYTES):
        return _digest(bytes(value))
    if isinstance(value, contextvars.ContextVar):
        return look_of(value.get(None))
    if hasattr(value, "cache_info") and hasattr(value, "cache_clear"):
        return value.cache_info().currsize
    if isinstance(value, (io.StringIO, io.BytesIO)):
        return (value.closed, *(() if value.closed else (value.getvalue(), value.tell())))
    if isinstance(value, io.IOBase) or hasattr(value, "tell"):
        try:
            return value.tell()
        except Exception:
            return None
    return None


def _numbers(value: Tensor) -> Any:
    """The content of a small tensor beside the parameters, as bytes."""
    if value.is_meta or value.requires_grad or value.numel() > _LONG or value.device.type != "cpu":
        return None
    if type(value) is not Tensor or value.layout != torch.strided:
        return None
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        return value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()


def look_of(value: Any, depth: int = _DEPTH) -> Any:
    """What Python sees of `value`, comparable: content where it is plain, else type and attributes.

    A tensor counts by type and in-place changes, since every forward may store a new one.
    """
    value = plain(value)
    if isinstance(value, (str, bytes)) and len(value) > _LONG:
        return type(value).__name__, hash(value)
    if isinstance(value, PLAIN):
        return type(value).__name__, repr(value)
    if isinstance(value, Tensor):
        # A meta tensor is of a trace, and each trace makes its own.
        changes = None if value.is_meta or value.is_inference() else value._version
        return "tensor", str(value.dtype), tuple(value.shape), changes, _numbers(value)
    if isinstance(value, (nn.Module, type, types.FunctionType, types.BuiltinFunctionType)):
        named = value if not isinstance(value, nn.Module) else type(value)
        return type(value).__name__, _name_of(named)
    state = _own_state(value)
    if state is not None:
        return type(value).__name__, state
    if depth == 0 or callable(value):
        return (type(value).__name__,)
    if isinstance(value, Mapping):
        items = dict.items(value) if isinstance(value, dict) else value.items()
        return "map", [(look_of(k, depth - 1), look_of(v, depth - 1)) for k, v in list(items)]
    if isinstance(value, (list, tuple, deque)):
        return type(value).__name__, [look_of(v, depth - 1) for v in value]
    if isinstance(value, (set, frozenset)):
        return "set", sorted(repr(look_of(v, depth - 1)) for v in value)
    held = getattr(value, "__dict__", None)
    if held:
        return type(value).__name__, [(k, look_of(v, depth - 1)) for k, v in list(held.items())]
    return type(value).__name__, _reduced(value, depth)


def _reduced(value: Any, depth: int) -> Any:
    """The content of an object without attributes, as its class would pickle it."""
    if type(value).__module__.partition(".")[0] in ("torch", "_thread", "threading"):
        return None
    try:
        form = value.__reduce_ex__(4)
    except Exception:
        return None
    return form if isinstance(form, str) else [
        look_of(part, depth - 1) for part in form[1:3]
    ]  # fmt: skip


def shape_of(value: Any) -> Any:
    """What is seen of `value` where the places inside of it are looked at by themselves."""
    if type(value) in _TOLD_AT_ONCE:  # most places; the questions below cost ten times as much
        return type(value).__name__, repr(value)
    value = plain(value)
    if isinstance(value, os._Environ):
        return "map", tuple(value)
    if isinstance(value, Mapping) and hasattr(value, "__setitem__"):
        return "map", tuple(look_of(k, 2) for k in list(value))
    if isinstance(value, (list, deque)):
        return type(value).__name__, len(value), getattr(value, "maxlen", None)
    own = not isinstance(value, (*PLAIN, Tensor, tuple, set, frozenset, type, nn.Module))
    if own and getattr(value, "__dict__", None) and _own_state(value) is None:
        return type(value).__module__, type(value).__qualname__
    return look_of(value)


def short(look: Any) -> str:
    """A look, for a message."""
    if isinstance(look, tuple) and len(look) == 2 and isinstance(look[1], str):
        return look[1] if len(look[1]) <= 40 else look[1][:37] + "..."
    return str(look[0]) if isinstance(look, tuple) else "nothing"


def moved(
    name: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    form: str = ", from {} to {}",
) -> str:
    """The first values at a name that differ in two looks, for a message; "" where they look
    alike."""
    one, two = before.get(name) or [], after.get(name) or []
    at = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
    values = [short(look[at]) if at < len(look) else "nothing" for look in (one, two)]
    return form.format(*values) if values[0] != values[1] else ""
