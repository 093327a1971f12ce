"""The grid of rounded values, and a log's choices on it, in integers (NUMERICS 13, 14).

It is slow and exact. A referee computes one element with it, and tests compare fast kernels with
it. Real numbers are integers in a unit of 2^-u. An element of the grid has an *index*: 0 is zero,
the next larger one is 1, and so on to plus infinity; negative elements likewise. Neighbours'
indices differ by one. An even index is an encoding whose lowest kept bit is zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

UNIT = 298  # an accumulator's S is in units of 2^-298 (NUMERICS 13.5)
_FINE = 1074  # every finite binary64, E among them, is a multiple of 2^-1074
_MIDDLES = 150  # every boundary is a multiple of 2^-150

# C of NUMERICS 14.4: C/u = 1 + 2^-20 pays for the bound's own roundings.
BOUND_FACTOR = float.fromhex("0x1.00001p-53")

DOWN, UP = 0, 1  # an entry's direction (NUMERICS 14.2)
# Of a published entry: on which side of x the value lies (NUMERICS 14.9).
_SIDES: dict[int | None, int] = {0: -1, 2: 1}


@dataclass(frozen=True)
class Grid:
    """G of NUMERICS 13.2; `bits` is B, 20 to 32."""

    bits: int

    @property
    def _fraction(self) -> int:
        """Kept bits of the significand below its leading one."""
        return self.bits - 9

    @property
    def infinity(self) -> int:
        """The index of plus infinity."""
        return 255 << self._fraction

    def nearest(self, number: int, unit: int = UNIT) -> int:
        """The index of R(number * 2^-unit) (NUMERICS 13.2)."""
        magnitude, kept = abs(number), self._fraction
        if not magnitude:
            return 0
        exponent = max(magnitude.bit_length() - 1 - unit, -126)
        drop = exponent - kept + unit  # the quantum is 2^(exponent - kept)
        if drop <= 0:
            steps = magnitude << -drop
        else:
            steps, rest = magnitude >> drop, magnitude & ((1 << drop) - 1)
            half = 1 << (drop - 1)
            steps += rest > half or (rest == half and steps & 1)
        # A normal number's leading bit is its exponent's lowest one: a carry needs no care.
        index = min(steps + ((exponent + 126) << kept), self.infinity)
        return -index if number < 0 else index

    def value(self, index: int) -> np.float32:
        """The binary32 with this index; a zero is +0."""
        bits = abs(index) << (32 - self.bits) | (0x80000000 if index < 0 else 0)
        return cast(np.float32, np.uint32(bits).view(np.float32))

    def index(self, value: Any) -> int | None:
        """The index of a binary32, None for a NaN or one that is not on the grid."""
        pattern = int(np.asarray(value, np.float32).view(np.uint32))
        magnitude = pattern & 0x7FFFFFFF
        index = magnitude >> (32 - self.bits)
        if magnitude > 0x7F800000 or index << (32 - self.bits) != magnitude:
            return None
        return -index if pattern >> 31 else index

    def boundary(self, index: int) -> int:
        """Twice the boundary between `index` and its upper neighbour, in units of 2^-150."""
        return self.units(index) + self.units(index + 1)

    def units(self, index: int) -> int:
        """The element with this index in units of 2^-150; infinity counts as 2^128."""
        magnitude, kept = abs(index), self._fraction
        exponent, steps = magnitude >> kept, magnitude & ((1 << kept) - 1)
        if exponent:
            steps += 1 << kept
        units = steps << (max(exponent, 1) - 1 + 23 - kept + 1)
        return -units if index < 0 else units


@dataclass(frozen=True)
class Doubt:
    """A log's choice for an element, by E and v* = `number` * 2^-298, where all terms are finite.

    `low` and `high` are the indices of the ends of V (NUMERICS 14.5), `nearest` that of R(v*).
    """

    grid: Grid
    number: int
    bound: float
    low: int
    high: int
    nearest: int

    @property
    def open(self) -> bool:
        """True if V has two elements: an entry names the value."""
        return self.high == self.low + 1

    def value(self, direction: int | None) -> int:
        """The index of the element's value, given its entry's direction (NUMERICS 14.5)."""
        if direction is None or not self.open:
            return self.nearest
        return self.high if direction == UP else self.low

    def allows(self, index: int) -> bool:
        """True if the element of the grid is in V."""
        return self.low <= index <= self.high

    def forged(self, direction: int) -> bool:
        """True if no admissible kernel leads to an entry of this direction (NUMERICS 14.7)."""
        if self.open:
            return False
        read, other = self._distance(direction == DOWN), self._distance(direction == UP)
        if read is None:
            return True  # infinity has no boundary beyond it
        far = read > 3 * _fine(self.bound)
        return far and other is not None and other < read

    @property
    def reach(self) -> Reach:
        """The values that a published log's entries allow here."""
        exact, slack = self.number << (_FINE - UNIT), _fine(self.bound)
        return Reach(self.grid, exact - slack, exact + slack, self.nearest)

    def _distance(self, above: bool) -> int | None:
        """From v* to the boundary above (below) R(v*), in units of 2^-1074."""
        index = self.nearest if above else self.nearest - 1
        if index in (self.grid.infinity, -self.grid.infinity - 1):
            return None
        middle = self.grid.boundary(index) << (_FINE - _MIDDLES - 1)
        return abs(middle - (self.number << (_FINE - UNIT)))


@dataclass(frozen=True)
class Reach:
    """The range of a published kernel's x: `least` * 2^-1074 to `most` * 2^-1074 (NUMERICS 14.10).

    x approximates a value x*, and `nearest` is the index of R(x*). An entry None is 1, as in a log.
    """

    grid: Grid
    least: int
    most: int
    nearest: int

    def ends(self, entry: int | None) -> tuple[int, int]:
        """The indices of the least and the greatest rev(x, entry) (NUMERICS 14.9).

        rev(x, 0) is the greatest element of the grid that is not above x, rev(x, 2) the least one
        that is not below it: all three are monotone in x.
        """
        side = _SIDES.get(entry, 0)
        return self._reversed(self.least, side), self._reversed(self.most, side)

    def _reversed(self, x: int, side: int) -> int:
        """The index of R(x) or, below (-1) or above (1), of the nearest one that is not past x."""
        nearest = self.grid.nearest(x, _FINE)
        if abs(nearest) == self.grid.infinity:  # every x is on the inner side of it
            return nearest + side if nearest * side < 0 else nearest
        # units() counts in 2^-150, x in 2^-1074.
        past = side * (x - (self.grid.units(nearest) << (_FINE - _MIDDLES)))
        return nearest + side if side and past > 0 else nearest

    @property
    def open(self) -> bool:
        """True if x's rounding alone does not determine the value."""
        low, high = self.ends(1)
        return low < high

    def allows(self, index: int | None, entry: int | None) -> bool:
        """True if some x in reach has this rev(x, entry); None is no element of the grid."""
        low, high = self.ends(entry)
        return index is not None and low <= index <= high

    def true(self, index: int | None, entry: int | None) -> bool:
        """True if the value may be that of a party with this entry.

        Some x in reach must have this rev(x, entry), and some x in reach must round to the value.
        The entry alone is not enough. Where x* is a number of the grid, kernels' results lie on
        both sides of it. For a result below it the entry 0 gives the lower neighbour, to which no
        kernel rounds.
        """
        return self.allows(index, None) and self.allows(index, entry)

    def forged(self, entry: int | None) -> bool:
        """True if the entry gives, for every x in reach, a value to which no x in reach rounds."""
        (low, high), (least, most) = self.ends(entry), self.ends(1)
        return high < least or low > most


def reach_of(grid: Grid, value: float, bound: float) -> Reach:
    """The reach of an x that approximates `value` within `bound`, both finite."""
    exact, slack = _fine(value), _fine(bound)
    return Reach(grid, exact - slack, exact + slack, grid.nearest(exact, _FINE))


def doubt(grid: Grid, number: int, bound: float) -> Doubt:
    """V and R(v*) of v* = number * 2^-298 with |w - v*| <= bound, bound >= 0 and finite."""
    exact, slack = number << (_FINE - UNIT), _fine(bound)
    low, high = (grid.nearest(exact + side * slack, _FINE) for side in (-1, 1))
    return Doubt(grid, number, bound, low, high, grid.nearest(number))


def _fine(number: float) -> int:
    """A finite binary64 in units of 2^-1074."""
    over, under = number.as_integer_ratio()
    return over << (_FINE - under.bit_length() + 1)


def bound_of_products(terms: int, a: float, b: float, last: float | None = None) -> float:
    """E of an element of `terms` terms (NUMERICS 14.4).

    a, b: SUM64 of the squares of both factors; `last` is the term that is no product, if any.
    """
    scale = float(terms) * BOUND_FACTOR
    bound = (scale * math.sqrt(a)) * math.sqrt(b)
    return bound if last is None else bound + scale * abs(last)


def bound_of_sum(terms: int, total: float) -> float:
    """E of a sum of `terms` terms, whose magnitudes have SUM64 `total` (NUMERICS 14.4)."""
    return float(terms) * BOUND_FACTOR * total
