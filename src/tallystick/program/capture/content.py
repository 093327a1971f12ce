"""What Python's mutable objects hold, to be put back in place (PROGRAM 5.19)."""

from __future__ import annotations

import contextvars
import copy
import ctypes
import io
import os
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallystick.program.capture.looks import BYTES, Relay

Back = Callable[[], object]
_MOST_ELEMENTS = 1 << 20
_MISSING = object()


def _same_items(one: Any, two: Any) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


def items_of(held: dict[Any, Any]) -> Back:
    """By the methods of `dict`: a class of its own may make its values as they are read."""
    own: Any = OrderedDict if isinstance(held, OrderedDict) else dict
    content = {key: dict.__getitem__(held, key) for key in own.keys(held)}

    def back() -> None:
        now = [dict.__getitem__(held, key) for key in own.keys(held)]
        if _same_items(own.keys(held), content) and _same_items(now, content.values()):
            return
        own.clear(held)
        for key, value in content.items():
            own.__setitem__(held, key, value)

    return back


def _environment(held: Any) -> Back:
    content = dict(held)

    def back() -> None:
        for name in set(held) - set(content):
            del held[name]
        for name, text in content.items():
            if held.get(name) != text:
                held[name] = text

    return back


def _bytes(value: Any) -> Back:
    content = bytes(value)
    if isinstance(value, memoryview):
        view = value.cast("B")
        return (lambda: None) if value.readonly else lambda: view.__setitem__(slice(None), content)
    if isinstance(value, bytearray):
        return lambda: value.__setitem__(slice(None), content)
    if hasattr(value, "typecode"):

        def put() -> None:
            del value[:]
            value.frombytes(content)

        return put
    return lambda: ctypes.memmove(ctypes.addressof(value), content, len(content))


def _text(value: Any) -> Back:
    content, at = value.getvalue(), value.tell()

    def back() -> None:
        value.seek(0)
        value.truncate()
        value.write(content)
        value.seek(at)

    return back


def content_of(value: Any) -> Back | None:
    """A function that puts the content of `value` back in place, if it has any that changes."""
    if isinstance(value, (list, deque)):
        items = list(value)

        def back() -> None:
            if not _same_items(value, items):
                value.clear()
                value.extend(items)

        return back
    if isinstance(value, dict):
        return items_of(value)
    if isinstance(value, os._Environ):
        return _environment(value)
    if isinstance(value, set):
        members = set(value)

        def put() -> None:
            if value != members:
                value.clear()
                value.update(members)

        return put
    if isinstance(value, np.ndarray):
        if not value.flags.writeable or value.nbytes > 1 << 26:
            return None
        array = value.copy()
        return lambda: np.copyto(value, array)
    if isinstance(value, BYTES):
        return _bytes(value)
    if isinstance(value, random.Random):
        state = value.getstate()
        return lambda: value.setstate(state)
    if isinstance(value, np.random.RandomState):
        legacy = value.get_state()
        return lambda: value.set_state(legacy)
    if isinstance(value, np.random.Generator):
        bits = copy.deepcopy(value.bit_generator.state)
        return lambda: setattr(value.bit_generator, "state", bits)
    if isinstance(value, torch.Generator):
        drawn = value.get_state()
        return lambda: value.set_state(drawn)
    if isinstance(value, Relay):
        position = value.position
        return lambda: setattr(value, "position", position)
    if isinstance(value, contextvars.ContextVar):
        held = value.get(_MISSING)
        return None if held is _MISSING else lambda: value.set(held)
    if isinstance(value, (io.StringIO, io.BytesIO)) and not value.closed:
        return _text(value)
    if hasattr(value, "cache_info") and hasattr(value, "cache_clear"):
        size = value.cache_info().currsize
        return lambda: value.cache_clear() if value.cache_info().currsize != size else None
    return None


def tensor_content_of(value: Tensor) -> Back | None:
    if value.is_meta or value.requires_grad or value.numel() > _MOST_ELEMENTS:
        return None
    if value.is_inference() or type(value) is not Tensor:
        return None
    content, version = value.clone(), value._version

    def back() -> None:
        if value._version != version:
            with torch.no_grad():
                value.copy_(content)

    return back
