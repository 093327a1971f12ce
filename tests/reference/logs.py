"""What a log's entry makes of an element, and when it is forged, in fractions (NUMERICS 14)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from reference.rounded import grid_pattern

C = float.fromhex("0x1.00001p-53")
_TOP = 0x7F800000


def order(pattern: int) -> int:
    """Grid elements as integers in the order of the numbers, zero being 0."""
    magnitude = pattern & 0x7FFFFFFF
    return -magnitude if pattern >> 31 else magnitude


def number(at: int) -> Fraction:
    """The element `at` of that order; infinity is what its boundary takes it for."""
    if abs(at) == _TOP:
        size = Fraction(2) ** 128
    else:
        size = Fraction(float(np.uint32(abs(at)).view(np.float32)))
    return -size if at < 0 else size


@dataclass(frozen=True)
class Element:
    """An element by its finite terms (13.3), E (14.4) and B."""

    terms: list[Fraction]
    bound: float
    b: int

    @cached_property
    def true(self) -> Fraction:
        return sum(self.terms, Fraction(0))

    @cached_property
    def nearest(self) -> int:
        return order(grid_pattern(self.true, self.b))

    @cached_property
    def v(self) -> list[int]:
        """V, in ascending order (14.5)."""
        slack = Fraction(self.bound)
        ends = [order(grid_pattern(self.true + s, self.b)) for s in (-slack, slack)]
        return list(range(ends[0], ends[1] + 1, 1 << (32 - self.b)))

    def value(self, direction: int | None) -> int:
        """The pattern of the element's value, given its entry (14.5)."""
        v = self.v
        at = self.nearest
        if direction is not None and len(v) == 2:
            at = v[direction]
        return at if at >= 0 else 0x80000000 | -at

    def forged(self, direction: int) -> bool:
        """14.7."""
        if len(self.v) == 2:
            return False
        step, r, true = 1 << (32 - self.b), self.nearest, self.true
        distance: list[Fraction | None] = []
        for side in (step, -step) if direction == 0 else (-step, step):
            beyond = abs(r + side) > _TOP
            middle = None if beyond else (number(r) + number(r + side)) / 2
            distance.append(None if middle is None else abs(true - middle))
        read, other = distance
        if read is None:
            return True
        return read > 3 * Fraction(self.bound) and other is not None and other < read
