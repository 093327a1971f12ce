"""Functions and tables of numbers, followed while a trace runs, wherever code has them from."""

from __future__ import annotations

import contextlib
import dis
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from tallystick.program.capture.places import KeptPlace, functions_of, places_of
from tallystick.program.capture.recorded import (
    Conversion,
    Indexed,
    IndexedArray,
    following,
)
from tallystick.program.capture.replaced import FOLLOWED, replacing, usual
from tallystick.program.capture.source import is_installed

_CONVERSIONS: tuple[type, ...] = (int, float, bool)


def _is_table(value: Any) -> bool:
    """Whether `value` is a list, or an array of one axis, of numbers alone."""
    if type(value) is np.ndarray:
        return value.ndim == 1 and value.dtype.kind in "iuf"
    return type(value) is list and bool(value) and all(type(v) in (int, float) for v in value)


class Functions:
    """Functions and tables through which recorded numbers are followed, in the code that is reached
    from `roots`: those of `FOLLOWED`, in their modules and where code holds them by a name of its
    own (`from math import cos`); the conversions to `int` and `float`; lists and arrays of numbers
    that are indexed."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self._roots = roots
        self._own: list[tuple[str, str, Callable[..., Any]]] = []
        for row in FOLLOWED:
            self._own += [(row.owner, name, usual(row.owner, name)) for name in row.names]
        self._followed = {id(function): following(function) for _, _, function in self._own}

    def _stand_in(self, value: Any) -> Any:
        """What follows in the place of `value`, or None."""
        if _is_table(value):
            return Indexed(value) if isinstance(value, list) else value.view(IndexedArray)
        return self._followed.get(id(value)) if callable(value) else None

    @cached_property
    def _places(self) -> list[KeptPlace]:
        return [p for p, value in places_of(self._roots) if self._stand_in(value) is not None]

    @cached_property
    def _globals(self) -> list[tuple[dict[str, Any], str, Conversion]]:
        """Where own code calls a conversion: its globals get one of ours beside the builtin."""
        found: dict[tuple[int, str], tuple[dict[str, Any], str, Conversion]] = {}
        for function in functions_of(self._roots):
            room = function.__globals__
            if is_installed(function.__code__.co_filename):
                continue  # libraries ask types of these names in many ways
            for kind in _CONVERSIONS:
                name = kind.__name__
                if name in _called(function.__code__) and name not in room:
                    found[id(room), name] = room, name, Conversion(kind)
        return list(found.values())

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Within the block they follow recorded numbers; then they are put back."""
        with contextlib.ExitStack() as stack:
            places, rooms = self._places, self._globals
            for owner, name, function in self._own:
                stack.enter_context(replacing(owner, name, self._followed[id(function)]))
            for place in places:
                value = place.get()
                stand_in = self._stand_in(value)
                if stand_in is not None:
                    place.set(stand_in)
                    stack.callback(self._put_back, place, stand_in, value)
            for globals_, name, conversion in rooms:
                globals_[name] = conversion
                stack.callback(globals_.pop, name, None)
            yield

    @staticmethod
    def _put_back(place: KeptPlace, stand_in: Any, value: Any) -> None:
        """Unless the code has put something else there."""
        with contextlib.suppress(LookupError, AttributeError, ValueError):
            if place.get() is stand_in:
                place.set(value)


def _called(code: types.CodeType) -> set[str]:
    """The global names that a function's code, and functions inside of it, call."""
    found = set()
    for step in dis.get_instructions(code):
        # From 3.11 on, a global that is called is loaded with a place for `self` below it.
        called = sys.version_info < (3, 11) or (step.arg or 0) & 1
        if step.opname == "LOAD_GLOBAL" and called:
            found.add(str(step.argval))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _called(constant)
    return found
