"""Finds the elements of a product near a boundary, for many of them at once (NUMERICS 14.6).

This is the vectorised side of `numerics.grid`; elements of the grid have the same indices. The
exact sum decides about the elements that these functions leave open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick import _core

Array = np.ndarray
_SLACK = 2.0**-50
_ABOVE_ALL = 2.0**128  # the value of plus infinity in the overflow boundary (NUMERICS 13.2)


def indices_of(values: Array, bits: int) -> Array:
    """i64: the indices of binary32 values on the grid with `bits` bits. The values hold no NaN."""
    pattern = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.int64)
    magnitude = (pattern & 0x7FFFFFFF) >> (32 - bits)
    index: Array = np.where(pattern >> 31, -magnitude, magnitude)
    return index


def values_at(indices: Array, bits: int) -> Array:
    """f32: the grid's elements with these indices; a zero is +0."""
    magnitude = (np.abs(indices) << (32 - bits)).astype(np.uint32)
    sign = np.where(indices < 0, np.uint32(0x80000000), np.uint32(0))
    pattern: Array = magnitude | sign
    return pattern.view(np.float32)


def boundaries(low: Array, bits: int) -> Array:
    """f64, exact: the boundary between the element `low` of the grid and the next larger one."""
    ends = [values_at(low + side, bits).astype(np.float64) for side in (0, 1)]
    below, above = (np.where(np.isinf(e), np.copysign(_ABOVE_ALL, e), e) for e in ends)
    middle: Array = below / 2 + above / 2  # halves of binary32 values are exact in binary64
    return middle


@dataclass(frozen=True)
class Neighbourhood:
    """Elements w f64[k] with their bounds E, and the boundaries in [w − 2E, w + 2E].

    `finite` is False where w or E is not usable; there the other members have no meaning. `low` and
    `high` are the indices of R of the interval's ends, rounded outwards. `close` says that the
    interval has one boundary, which is surely within 2E of w, not only by that rounding.
    """

    finite: Array
    low: Array
    high: Array
    close: Array


def around(w: Array, bound: Array, bits: int) -> Neighbourhood:
    """The neighbourhoods of w f64[k] with bounds E f64[k] on the grid of `bits` bits."""
    finite = np.isfinite(w) & np.isfinite(bound)
    centre, reach = np.where(finite, w, 0.0), np.where(finite, bound, 0.0) * 2
    ends = []
    for end in (np.nextafter(centre - reach, -np.inf), np.nextafter(centre + reach, np.inf)):
        rounded: Array = np.empty(len(end), np.float32)
        _core.round_grid(end, rounded, bits)
        ends.append(indices_of(rounded, bits))
    low, high = ends
    one = finite & (high - low == 1)
    distance = np.abs(centre - boundaries(np.where(one, low, 0), bits))
    # The difference may be rounded (w near 0). The next larger number is not below it.
    close = one & (np.nextafter(distance, np.inf) <= reach)
    return Neighbourhood(finite, low, high, close)


def read_beyond_doubt(
    w: Array, bound: Array, near: Neighbourhood, directions: Array, bits: int
) -> tuple[Array, Array]:
    """Masks of entries that are surely forged, and surely not, without an exact sum (14.7).

    It decides only where no boundary is within 2E of w, so that R(w) is R(v*). Because v* is within
    E of w, its distances differ from those of w by at most E. The margins pay for the roundings
    here.
    """
    nearest = near.low
    settled = near.finite & (near.low == near.high)
    settled &= np.abs(nearest) < 255 << (bits - 9)  # infinity has a boundary on one side only
    nearest = np.where(settled, nearest, 0)
    centre, reach = np.where(settled, w, 0.0), np.where(settled, bound, 0.0)
    above = np.abs(boundaries(nearest, bits) - centre)
    below = np.abs(centre - boundaries(nearest - 1, bits))
    read = np.where(directions == 0, above, below)
    other = np.where(directions == 0, below, above)
    slack = _SLACK * (above + below)
    # The other boundary is already beyond 2E of w, so the one read here is beyond 4E of it.
    forged = settled & (read - other - slack > 2 * reach)
    honest = settled & (other - read - slack > 2 * reach)
    return forged, honest
