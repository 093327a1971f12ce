"""Which values in a trace depend on state that changes between calls (PROGRAM 5.19).

A number, a string, or a reference that was chosen depends on it as a recorded value. An object that
changes is known by its identity, and a place by its holder and key: both hold what they always
held, so that code in C finds nothing strange.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
from torch import Tensor, nn

from tallystick.program.capture.looks import BYTES
from tallystick.program.capture.recorded import Expression, NumberRecord, Recorded, Use, is_recorded
from tallystick.program.capture.source import here, is_model

Site = tuple[str, int, int, str]
_MOST_TRUTHS = 200_000
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


def site_of(frame: FrameType | None, what: str = "") -> Site:
    """The instruction of the model that is at work."""
    while frame is not None and not is_model(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "", 0, 0, what
    return frame.f_code.co_filename, frame.f_lineno, frame.f_lasti, what


@dataclass(frozen=True)
class MovingReach:
    """A moving value went into the trace: by the nodes from `start` to `end`, or, where these are
    equal, in a way that leaves none."""

    start: int
    end: int
    expression: Expression
    what: str
    place: str


@dataclass
class MarkedAnswers(NumberRecord):
    """A record whose truths may be turned around: those at the sites of `turned`.

    `turned` has, by a site and the true answer there, how many times it is turned around. `truths`
    has the first use at each, and how many there were.
    """

    turned: dict[tuple[Site, bool], int] = field(default_factory=dict)
    truths: dict[tuple[Site, bool], tuple[Use, int]] = field(default_factory=dict)
    reaches: list[MovingReach] = field(default_factory=list)
    asked: int = 0

    def truth(self, number: Recorded) -> bool:
        return self.decided(bool(number.number), number.expression)

    def decided(self, true: bool, expression: Expression, what: str = "") -> bool:
        self.asked += 1
        if self.asked > _MOST_TRUTHS:
            raise RuntimeError("A loop does not end where a branch is turned around.")
        key = site_of(sys._getframe(1), what), true
        use, times = self.truths.get(key) or (Use("truth", expression, true, here()), 0)
        self.truths[key] = use, times + 1
        return not true if times < self.turned.get(key, 0) else true

    def pin(self, number: Recorded) -> Any:
        self.reach(number.expression, "goes into code that is not followed")
        return number.number

    def tensor(self, number: Recorded) -> Use:
        self.reach(number.expression, "goes into the program")
        return Use("tensor", number.expression, number.number, here())

    def reach(self, expression: Expression, what: str, start: int = 0, end: int = 0) -> None:
        self.reaches.append(MovingReach(start, end, expression, what, here()))


def _followed(*parts: Any) -> Any:
    raise TypeError("A followed value is not a function of its sources' numbers.")


class MovingMarks:
    """What depends on moving state: recorded values, and marks on objects and places."""

    def __init__(self, record: MarkedAnswers) -> None:
        self.record = record
        self.objects: dict[int, tuple[Any, Expression]] = {}
        self.places: dict[tuple[int, Any], tuple[Any, Expression]] = {}
        self.holders: dict[int, Expression] = {}
        self.mixed: dict[frozenset[str], Expression] = {}

    # -- marks -------------------------------------------------------------------------------------
    def mark_object(self, value: Any, expression: Expression) -> None:
        self.objects.setdefault(id(value), (value, expression))

    def mark_place(self, holder: Any, key: Any, expression: Expression) -> None:
        try:
            self.places[id(holder), key] = holder, expression
        except TypeError:
            self.mark_object(holder, expression)
            return
        self.holders.setdefault(id(holder), expression)

    def unmark_place(self, holder: Any, key: Any) -> None:
        try:
            self.places.pop((id(holder), key), None)
        except TypeError:
            return

    def at(self, holder: Any, key: Any) -> Expression | None:
        try:
            found = self.places.get((id(holder), key))
        except TypeError:
            return self.holders.get(id(holder))
        return None if found is None else found[1]

    # -- what a value depends on -------------------------------------------------------------------
    def of(self, value: Any) -> Expression | None:
        """What `value` itself depends on."""
        if is_recorded(value):
            found: Expression = value.expression
            return found
        known = self.objects.get(id(value))
        return None if known is None else known[1]

    def mix(self, expressions: Iterable[Expression | None]) -> Expression | None:
        known = [e for e in expressions if e is not None]
        if not known or all(e is known[0] for e in known):
            return known[0] if known else None
        names = frozenset[str]().union(*(e.sources() for e in known))
        if names not in self.mixed:
            parts = tuple(Expression.source(name) for name in sorted(names))
            self.mixed[names] = Expression(_followed, parts)
        return self.mixed[names]

    def inside(self, value: Any, depth: int = 4) -> Expression | None:
        """What `value` depends on, with what containers, slices and arguments hold."""
        own = self.of(value)
        if own is not None or depth == 0 or isinstance(value, (*_SCALARS, Tensor, nn.Module)):
            return own
        held = self.holders.get(id(value))
        if held is not None:
            return held
        if isinstance(value, (list, tuple, set, frozenset, deque)):
            return self.mix(self.inside(v, depth - 1) for v in list(value))
        if isinstance(value, dict):
            return self.mix(self.inside(v, depth - 1) for v in list(dict.values(value)))
        if isinstance(value, slice):
            return self.mix(map(self.of, (value.start, value.stop, value.step)))
        return None

    # -- values ------------------------------------------------------------------------------------
    def recorded(self, value: Any, expression: Expression | None) -> Any:
        """`value`, recorded where it depends on something."""
        if expression is None or is_recorded(value) or value is NotImplemented:
            return value
        return self.record.value(value, expression)

    def bare(self, value: Any, depth: int = 4) -> Any:
        """`value` for code that is not followed: without recorded values, also inside.

        A list or dict keeps its identity, and is marked if it held one.
        """
        if is_recorded(value):
            return value.number
        if depth == 0 or isinstance(value, (*_SCALARS, Tensor)):
            return value
        if type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
            parts = [self.bare(v, depth - 1) for v in value]
            if all(a is b for a, b in zip(parts, value, strict=True)):
                return value
            return tuple(parts) if type(value) is tuple else type(value)(*parts)
        if isinstance(value, slice):
            return slice(*(self.bare(v, 1) for v in (value.start, value.stop, value.step)))
        if isinstance(value, (list, deque)):
            for i, part in enumerate(list(value)):
                self._bare_item(value, i, part, depth)
        elif isinstance(value, dict):
            for key, part in list(dict.items(value)):
                self._bare_item(value, key, part, depth)
        return value

    def _bare_item(self, holder: Any, key: Any, part: Any, depth: int) -> None:
        found = self.bare(part, depth - 1)
        if found is not part:
            expression = self.inside(part)
            holder[key] = found
            if expression is not None:
                self.mark_place(holder, key, expression)

    def holds(self, value: Any) -> bool:
        """Whether `value` is an object with content of its own, known by its identity."""
        return not isinstance(value, (*_SCALARS, Tensor, tuple, frozenset, type)) and (
            not callable(value) or hasattr(value, "__dict__") or hasattr(value, "__next__")
        )

    def mutable(self, value: Any) -> bool:
        """Whether code that is not followed may have changed `value` in place."""
        return isinstance(value, (list, dict, set, deque, np.ndarray, *BYTES))
