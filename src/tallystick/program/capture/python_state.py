"""The Python state that a step reaches: looked at, compared, and put back (PROGRAM 5.19)."""

from __future__ import annotations

import contextvars
import copy
import ctypes
import io
import itertools
import os
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.program.capture.looks import BYTES, Relay, is_iterator, shape_of
from tallystick.program.capture.places import Place, Reached, reached_from
from tallystick.program.capture.recorded import is_recorded, plain

# Names end in _hooks, _hooks_with_kwargs and _hooks_always_called.
_INSIDE = [
    k for k, v in vars(nn.Module()).items() if isinstance(v, dict) and ("_hooks" in k)
] + ["_modules"]  # fmt: skip
_COPIED = (itertools.count, type(iter([])), type(iter(())), type(iter(range(0))))
_MOST_ELEMENTS = 1 << 20
_MISSING = object()


def _same_items(one: Any, two: Any) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


def _dict(held: Any) -> Callable[[], None]:
    content = dict(held)

    def back() -> None:
        if _same_items(held, content) and _same_items(held.values(), content.values()):
            return
        held.clear()
        held.update(content)

    return back


def _bytes(value: Any) -> Callable[[], None]:
    content = bytes(value)
    if isinstance(value, memoryview):
        return (lambda: None) if value.readonly else lambda: value.cast("B").__setitem__(
            slice(None), content
        )  # fmt: skip
    if isinstance(value, bytearray):
        return lambda: value.__setitem__(slice(None), content)
    if hasattr(value, "typecode"):
        return lambda: (value.__delitem__(slice(None)), value.frombytes(content), None)[2]
    return lambda: ctypes.memmove(ctypes.addressof(value), content, len(content)) and None


def _text(value: Any) -> Callable[[], None]:
    content, at = value.getvalue(), value.tell()

    def back() -> None:
        value.seek(0)
        value.truncate()
        value.write(content)
        value.seek(at)

    return back


def _content(value: Any) -> Callable[[], None] | None:
    """A function that puts the content of `value` back in place, if it has any that changes."""
    if isinstance(value, (list, deque)):
        items = list(value)

        def back() -> None:
            if not _same_items(value, items):
                value.clear()
                value.extend(items)

        return back
    if isinstance(value, (dict, os._Environ)):
        return _dict(value)
    if isinstance(value, set):
        members = set(value)
        return lambda: None if value == members else (value.clear(), value.update(members))[0]
    if isinstance(value, np.ndarray):
        if not value.flags.writeable or value.nbytes > 1 << 26:
            return None
        array = value.copy()
        return lambda: np.copyto(value, array)
    if isinstance(value, BYTES):
        return _bytes(value)
    if isinstance(value, (random.Random,)):
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
        return lambda: value.set_state(drawn) and None
    if isinstance(value, Relay):
        position = value.position
        return lambda: setattr(value, "position", position)
    if isinstance(value, contextvars.ContextVar):
        held = value.get(_MISSING)
        return None if held is _MISSING else lambda: value.set(held) and None
    if isinstance(value, (io.StringIO, io.BytesIO)) and not value.closed:
        return _text(value)
    if hasattr(value, "cache_info") and hasattr(value, "cache_clear"):
        size = value.cache_info().currsize
        return lambda: value.cache_clear() if value.cache_info().currsize != size else None
    return None


def _tensor(value: Tensor) -> Callable[[], None] | None:
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


def _numpys_state() -> Any:
    state: Any = np.random.get_state()
    return state[1].tobytes(), state[2:]


class Kept:
    """The content of everything reached, at one moment."""

    def __init__(self, found: Reached) -> None:
        with torch._C.DisableTorchFunction():
            self._keep(found)
        self.drawn = (random.getstate(), np.random.get_state(), torch.get_rng_state())

    def _keep(self, found: Reached) -> None:
        self.set: list[tuple[Place, Any]] = [
            (p, v) for p, v in found.places if p.kind in ("cell", "slot", "class")
            or (p.kind == "item" and isinstance(p.holder, dict) and "__name__" in p.holder)
        ]  # fmt: skip
        self.contents: list[Callable[[], None]] = []
        seen: set[int] = set()
        values = [v for _, v in found.places]
        for value in (*found.objects, *values):
            if id(value) in seen:
                continue
            seen.add(id(value))
            made = _tensor(value) if isinstance(value, Tensor) else _content(value)
            if made is not None:
                self.contents.append(made)
            if isinstance(value, (Tensor, Relay, type)):
                continue
            held = getattr(value, "__dict__", None)
            if type(held) is dict and not isinstance(value, type(os)):
                self.contents.append(_dict(held))
            if isinstance(value, nn.Module):
                self.contents += [_dict(vars(value)[k]) for k in _INSIDE if k in vars(value)]
        self.classes = [(kind, set(vars(kind))) for kind in found.objects if isinstance(kind, type)]

    def restore(self) -> None:
        """Everything as it was then.

        A model may add hooks to itself at its first forward, and an attribute that says so
        (transformers' `capture_outputs`). Without the attribute it would add them again.
        """
        for kind, names in self.classes:
            for name in set(vars(kind)) - names:
                delattr(kind, name)
        for place, value in self.set:
            try:
                now = place.get()
            except (LookupError, AttributeError, ValueError):
                now = _MISSING
            if now is not value:
                place.set(value)
        with torch._C.DisableTorchFunction():
            for back in self.contents:
                back()
        random.setstate(self.drawn[0])
        np.random.set_state(self.drawn[1])
        torch.set_rng_state(self.drawn[2])


class PythonState:
    """Everything that is reached from the module and the step: looked at, and put back.

    Iterators and generators in it become `Relay`s until `release`, since Python takes none back.
    """

    GENERATORS: Mapping[str, Callable[[], Any]] = {
        "Python's random": lambda: hash(random.getstate()),
        "numpy.random": _numpys_state,
        "torch's generator": lambda: torch.get_rng_state().numpy().tobytes(),
    }

    def __init__(self, module: nn.Module, *steps: Any) -> None:
        self.module = module
        self.roots = {"module": module, "os.environ": os.environ}
        self.roots |= {f"step{i or ''}": step for i, step in enumerate(steps)}
        self.relays: list[tuple[Place, Relay, Any]] = []
        self._relay()
        self.first = self.keep()

    def _relay(self) -> None:
        known: dict[int, Relay] = {}
        for place, value in reached_from(self.roots).places:
            if is_iterator(value):
                relay = known.setdefault(id(value), Relay(value))
                first = copy.copy(value) if type(value) in _COPIED else value
                self.relays.append((place, relay, first))
                place.set(relay)

    def reached(self) -> Reached:
        return reached_from(self.roots)

    def keep(self) -> Kept:
        """What there is now, to be put back."""
        return Kept(self.reached())

    def restore(self) -> None:
        """Everything as it was at the start: a trace leaves no meta tensor behind."""
        self.first.restore()

    def release(self) -> None:
        """The iterators in their places again, as they were. Call `restore` before."""
        for place, relay, first in self.relays:
            if type(relay.iterator) in _COPIED or not relay.log:
                place.set(first)
            elif not hasattr(relay.iterator, "send"):
                done = [result for _, raised, result in relay.log if not raised]
                place.set(itertools.chain(done, relay.iterator))

    def strip(self, reached: Reached) -> set[str]:
        """Recorded values in places become plain again; the names of these places."""
        found = set()
        for place, value in reached.places:
            if is_recorded(value):
                place.set(plain(value))
                found.add(place.name)
        return found

    def look(self, found: Reached | None = None) -> dict[str, Any]:
        """By the name of a place or generator: what Python sees there. Equal names are a list."""
        seen: dict[str, Any] = {}
        for place, value in (found or self.reached()).places:
            seen.setdefault(place.name, []).append(shape_of(value))
        for name, draw in self.GENERATORS.items():
            seen[name] = [draw()]
        return seen


def seen_at(place: Place) -> Any:
    """What is seen at one place, or None where nothing is."""
    try:
        return shape_of(place.get())
    except (LookupError, AttributeError, ValueError):
        return None


def changed(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """The names at which two looks differ."""
    return [k for k in {**one, **two} if one.get(k) != two.get(k)]
