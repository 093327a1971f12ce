"""What is known of each training step before it is made: its number, its epoch, and what functions
and tables of numbers give for them, wherever code has these from (PROGRAM 5.21).
"""

from __future__ import annotations

import contextlib
import dis
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from tallystick.errors import UsageError
from tallystick.program.capture.places import KeptPlace, functions_of, places_of
from tallystick.program.capture.recorded import (
    Conversion,
    Expression,
    Indexed,
    IndexedArray,
    Number,
    NumberRecord,
    Recorded,
    Use,
    following,
)
from tallystick.program.capture.replaced import FOLLOWED, replacing, usual
from tallystick.program.capture.source import here, is_installed

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


@dataclass(frozen=True)
class KnownSteps:
    """The numbers of `count` training steps.

    `columns` has, by source, a number for each step. `constants` are the same in all of them, and
    are plain numbers for the traced code. `refused` says, by source, why a program cannot read it.
    The loss gets them as its last argument, if `told`.
    """

    count: int
    columns: Mapping[str, Sequence[Number]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    told: bool = True

    def sources(self, step: int) -> dict[str, Number]:
        """The sources' numbers in training step `step`."""
        return {name: column[step] for name, column in self.columns.items()}

    def each(self, expression: Expression, steps: Iterable[int]) -> list[Any]:
        """The expression's number in each of `steps`; a `Failed` where it raises."""
        names = sorted(expression.sources())
        columns = [self.columns[name] for name in names]
        known: dict[tuple[Any, ...], Any] = {}
        found = []
        for step in steps:
            key = tuple(column[step] for column in columns)
            if key not in known:
                try:
                    known[key] = expression.value(dict(zip(names, key, strict=True)))
                except (ArithmeticError, ValueError, LookupError, TypeError) as error:
                    known[key] = Failed(error)
            found.append(known[key])
        return found


@dataclass(frozen=True)
class Failed:
    """In the place of a number: what its arithmetic raises."""

    error: Exception


class _StepRecord(NumberRecord):
    """Uses of the numbers of a step; a source that no program can read is refused at its use."""

    def __init__(self, refused: Mapping[str, str]) -> None:
        super().__init__()
        self.refused = refused

    def _check(self, number: Recorded) -> None:
        for name in sorted(number.expression.sources() & set(self.refused)):
            raise UsageError(
                f"The loss reads the number of the {name}{here()}, and {self.refused[name]}.",
                "Compute without it there.",
            )

    def truth(self, number: Recorded) -> bool:
        self._check(number)
        return super().truth(number)

    def pin(self, number: Recorded) -> Any:
        self._check(number)
        return super().pin(number)

    def tensor(self, number: Recorded) -> Use:
        self._check(number)
        return super().tensor(number)


class Names:
    """The names of numbers that programs read, by how they come about: `at.0`, `at.1`, …."""

    def __init__(self) -> None:
        self._kinds: dict[Any, int] = {}
        self._known: dict[int, tuple[int, Expression]] = {}  # keeps the expression
        self.expressions: dict[str, Expression] = {}
        self._names: dict[int, str] = {}

    def kind(self, expression: Expression) -> int:
        """A number that two expressions have in common if they are the same arithmetic."""
        stack = [expression]
        while stack:
            at = stack[-1]
            if id(at) in self._known:
                stack.pop()
                continue
            inside = [
                a for a in at.arguments if isinstance(a, Expression) and id(a) not in self._known
            ]
            if inside:
                stack.extend(inside)
                continue
            stack.pop()
            parts = tuple(
                self._known[id(a)][0] if isinstance(a, Expression) else (type(a).__name__, repr(a))
                for a in at.arguments
            )
            number = self._kinds.setdefault((at.function, parts), len(self._kinds))
            self._known[id(at)] = number, at
        return self._known[id(expression)][0]

    def name(self, expression: Expression) -> str:
        """The expression's name, given at its first use."""
        kind = self.kind(expression)
        if kind not in self._names:
            self._names[kind] = f"at.{len(self._names)}"
            self.expressions[self._names[kind]] = expression
        return self._names[kind]


@dataclass(frozen=True)
class At:
    """Training step `step` of `steps`, as the traced code gets it: a namespace of its numbers."""

    steps: KnownSteps
    step: int
    names: Names
    functions: Functions | None
    fixed: bool = False  # a trace has the plain numbers

    def plain(self) -> SimpleNamespace:
        """The numbers themselves: for a step by torch."""
        return SimpleNamespace(**self.steps.sources(self.step), **self.steps.constants)

    def recorded(self) -> tuple[SimpleNamespace, NumberRecord]:
        """Recorded numbers, and the record of their uses: for a trace."""
        record = _StepRecord(self.steps.refused)
        found = self.steps.sources(self.step)
        # Of the plain ones too, what no program can read is refused at its use.
        seen = set(self.steps.refused) if self.fixed else set(found)
        numbers = {k: record.source(k, v) if k in seen else v for k, v in found.items()}
        return SimpleNamespace(**numbers, **self.steps.constants), record
