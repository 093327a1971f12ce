"""The grid, V and forged entries (NUMERICS 13.2, 14.4, 14.5, 14.7) against plain fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import published as paper

from tallystick.numerics.grid import (
    DOWN,
    UP,
    Grid,
    bound_of_products,
    bound_of_sum,
    doubt,
    reach_of,
)

TOP = Fraction(2) ** 128


def pattern(value: np.float32) -> int:
    return int(np.asarray(value, np.float32).view(np.uint32))


def element(bits: int, encoding: int) -> Fraction:
    """The non-negative element of G with this encoding; infinity's is the number 2^128."""
    return TOP if encoding >= 0x7F800000 else Fraction(float(np.uint32(encoding).view(np.float32)))


def nearest(bits: int, v: Fraction) -> int:
    """The encoding of |R(v)| by looking at both neighbours (NUMERICS 13.2)."""
    step, magnitude = 1 << (32 - bits), abs(v)
    if magnitude >= TOP:
        return 0x7F800000
    with np.errstate(over="ignore"):
        near = pattern(np.float32(float(magnitude))) // step * step
    while element(bits, near) > magnitude:
        near -= step
    while element(bits, near + step) <= magnitude:
        near += step
    below, above = magnitude - element(bits, near), element(bits, near + step) - magnitude
    if below == above:
        return near if near & step == 0 else near + step
    return near if below < above else near + step


def boundaries(bits: int, encoding: int) -> tuple[Fraction, Fraction]:
    """Both boundaries of a positive or zero, finite element of G."""
    step = 1 << (32 - bits)
    own = element(bits, encoding)
    below = element(bits, encoding - step) if encoding else -element(bits, step)
    return (own + below) / 2, (own + element(bits, encoding + step)) / 2


# A loaded machine is no fault of the rules.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
grids = st.sampled_from((20, 24, 27, 31, 32))
# Values about boundaries, subnormal ones, and about the overflow boundary.
encodings = st.one_of(
    st.integers(0, 0x7F7FFFFF), st.integers(0, 1 << 16), st.integers(0x7F7F0000, 0x7F7FFFFF)
)
# Far from zero and from infinity; hypothesis by itself draws nearly none of these.
middling = st.builds(
    lambda exponent, fraction: exponent << 23 | fraction,
    st.integers(30, 240),
    st.integers(0, (1 << 23) - 1),
)
nudges = st.sampled_from([Fraction(n, d) for d in (1, 2, 3, 10**9) for n in range(-3, 4)])


def near_boundary(bits: int, encoding: int, nudge: Fraction) -> Fraction:
    """The boundary above an element, moved by a part of the distance to the next element."""
    step = 1 << (32 - bits)
    encoding = encoding // step * step
    gap = element(bits, encoding + step) - element(bits, encoding)
    moved = boundaries(bits, encoding)[1] + nudge * gap
    return Fraction(round(moved * 2**298), 2**298)


@patient
@given(grids, encodings, nudges, st.booleans())
def test_nearest(bits: int, encoding: int, nudge: Fraction, negative: bool) -> None:
    v = near_boundary(bits, encoding, nudge) * (-1 if negative else 1)
    grid = Grid(bits)
    index = grid.nearest(int(v * 2**298))
    want = nearest(bits, v)
    sign = 0x80000000 if v < 0 and want else 0
    assert pattern(grid.value(index)) == want | sign
    assert grid.index(grid.value(index)) == index
    assert grid.nearest(int(v * 2**298) << 776, 1074) == index


def test_what_is_not_on_the_grid() -> None:
    grid = Grid(28)
    for x in (np.nan, -np.nan, np.float32(1 + 2.0**-23), -np.float32(2.0**-149)):
        assert grid.index(x) is None
    assert grid.index(np.float32(-0.0)) == grid.index(np.float32(0)) == 0
    assert grid.index(np.inf) == -grid.index(-np.inf) == grid.infinity  # type: ignore[operator]
    assert grid.index(1.0) == 127 << 19


@pytest.mark.parametrize("bits", [20, 28, 32])
def test_order_and_neighbours(bits: int) -> None:
    grid = Grid(bits)
    for index in (0, 1, (1 << (bits - 9)) - 1, 1 << (bits - 9), grid.infinity - 1, 12345):
        low, high = float(grid.value(index)), float(grid.value(index + 1))
        assert low < high
        assert grid.value(-index - 1) == -high
        if math.isfinite(high):
            assert Fraction(grid.boundary(index), 2**151) == (Fraction(low) + Fraction(high)) / 2
    last = Fraction(float(grid.value(grid.infinity - 1)))
    assert Fraction(grid.boundary(grid.infinity - 1), 2**151) == (last + TOP) / 2


sizes = st.sampled_from([Fraction(n, 8) for n in (0, 1, 2, 3, 4, 5, 8, 12, 40)])


@patient
@given(grids, encodings, nudges, sizes)
def test_v_and_forged_entries(bits: int, encoding: int, nudge: Fraction, size: Fraction) -> None:
    """14.5 and 14.7 word by word, for elements that are not next to zero or infinity."""
    step = 1 << (32 - bits)
    encoding = min(encoding // step * step, 0x7F000000 // step * step)
    v = abs(near_boundary(bits, encoding, nudge))
    gap = element(bits, encoding + step) - element(bits, encoding)
    bound = float(size * gap) if size * gap < TOP else 0.0
    e = Fraction(bound)
    r = nearest(bits, v)
    if r > 0x7E800000 or v < e:
        return
    found = doubt(Grid(bits), int(v * 2**298), bound)
    index = r // step
    inside = []  # V: elements whose own stretch of the line meets [v - E, v + E]
    for k in range(max(index - 60, 1), index + 60):
        low, high = boundaries(bits, k * step)
        closed = k % 2 == 0
        if (low <= v + e and v - e <= high) if closed else (low < v + e and v - e < high):
            inside.append(k)
    if inside and min(inside) > 1 and index > 60:
        assert (found.low, found.high, found.nearest) == (min(inside), max(inside), index)
        assert [k for k in range(index - 60, index + 60) if found.allows(k)] == inside
        assert found.open == (len(inside) == 2)
        below, above = boundaries(bits, r)
        for direction, read, other in ((DOWN, above, below), (UP, below, above)):
            if len(inside) == 2:
                want = inside[direction]
                assert not found.forged(direction)
            else:
                want = index
                far = abs(read - v) > 3 * e
                assert found.forged(direction) == (far and abs(other - v) < abs(read - v))
            assert found.value(direction) == want
        assert found.value(None) == index


def test_about_zero_and_infinity() -> None:
    grid = Grid(32)
    tiny = doubt(grid, 1 << 147, 0.0)  # 2^-151: R is zero
    assert (tiny.low, tiny.high, tiny.forged(UP)) == (0, 0, True)
    assert not tiny.forged(DOWN)  # the boundary 2^-150 is the nearer one
    two = doubt(grid, 1 << 148, 2.0**-200)  # the boundary itself
    assert (two.low, two.high, two.value(DOWN), two.value(UP), two.value(None)) == (0, 1, 0, 1, 0)
    huge = doubt(grid, 1 << (298 + 140), 1.0)
    assert huge.nearest == grid.infinity
    assert huge.forged(DOWN) and not huge.forged(UP)
    low = doubt(grid, -(1 << (298 + 140)), 1.0)
    assert low.nearest == -grid.infinity
    assert low.forged(UP) and not low.forged(DOWN)
    edge = doubt(grid, ((1 << 25) - 1) << (298 + 103), 1.0)  # the overflow boundary
    assert (edge.value(DOWN), edge.value(UP)) == (grid.infinity - 1, grid.infinity)
    assert edge.value(None) == grid.infinity  # ties go to the even one, as in RN32


overflown = st.sampled_from([s * 2.0**e for s in (-1, 1) for e in (128, 130, 250)])
wide = st.one_of(
    st.tuples(grids, encodings, nudges).map(lambda t: float(near_boundary(*t))), overflown
)


@patient
@given(grids, wide, st.booleans())
def test_forged_changes(bits: int, x: float, negative: bool) -> None:
    """14.10: without a bound every kernel has x = v*, so what rev changes is outside of V."""
    x = -x if negative else x
    number = Fraction(x) * 2**298
    if number.denominator != 1:
        return
    found, own = doubt(Grid(bits), int(number), 0.0), paper.rnd(x, bits)
    for entry in (0, 1, 2):
        value = paper.rev(x, bits, entry)
        assert found.reach.forged(entry) == (value != own)
        allowed = [k for k in (-1, 0, 1) if found.reach.allows(found.nearest + k, entry)]
        assert [found.grid.value(found.nearest + k) for k in allowed] == [value]


@patient
@given(
    grids,
    middling,
    nudges,
    st.floats(2.0**-60, 2.0**-18),
    st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    st.sampled_from([0, 2**4, 2**15, 2**17]),
    st.booleans(),
)
def test_no_kernel_within_the_bound_is_false(
    bits: int,
    encoding: int,
    nudge: Fraction,
    size: float,
    places: tuple[float, float],
    threshold: int,
    negative: bool,
) -> None:
    """14.10: a trainer's entry and value at x, and what a follower at another x makes of them where
    V(1) has it, or else its own of both, are true wherever both x lie within E of x*, and the entry
    is not forged. What no kernel rounds to is false whatever the entry."""
    center = float(near_boundary(bits, encoding, nudge)) * (-1 if negative else 1)
    assert 2.0**-100 < abs(center) < 2.0**120
    bound = abs(center) * size
    reach = reach_of(Grid(bits), center, bound)
    first, second = (center + place * bound * (1 - 2.0**-40) for place in places)
    entry = paper.log(first, bits, threshold, False)
    assert reach.true(reach.grid.index(np.float32(paper.rnd(first, bits))), entry)
    assert not reach.forged(entry)
    low, high = rounded_ends(bits, center, bound)
    followed = reach.grid.index(np.float32(paper.rev(second, bits, entry)))
    assert followed is not None
    assert reach.true(followed, entry) == (low <= followed <= high)
    own = reach.grid.index(np.float32(paper.rnd(second, bits)))
    assert reach.true(own, paper.log(second, bits, threshold, False))
    for said in (None, 0, 1, 2):
        assert not any(reach.true(k, said) for k in (low - 2, low - 1, high + 1, high + 2, None))
    for k in range(low, min(high, low + 3) + 1):
        assert reach.true(k, None) and reach.true(k, 1)


def rounded_ends(bits: int, center: float, bound: float) -> tuple[int, int]:
    """The least and the greatest index of V(1), by fractions."""
    ends = [Fraction(center) + side * Fraction(bound) for side in (-1, 1)]
    low, high = (nearest(bits, v) * (-1 if v < 0 else 1) // (1 << (32 - bits)) for v in ends)
    return low, high


@pytest.mark.parametrize("side", [-1, 1])
def test_a_step_from_a_number_of_the_grid_is_false_by_every_entry(side: int) -> None:
    """14.10: x* = 0.5 is of the grid; kernels lie on both sides of it, and all round to it. The
    entry that names a neighbour is not forged, but the neighbour is nobody's value."""
    reach = reach_of(Grid(32), 0.5, 2.0**-46)
    index = reach.grid.index(0.5)
    assert index is not None and not reach.open
    named = 1 + side
    assert reach.allows(index + side, named) and not reach.forged(named)
    for entry in (None, 0, 1, 2):
        assert not reach.true(index + side, entry)
        assert reach.true(index, entry)


def test_bounds_are_the_formulas() -> None:
    """14.4, each operation rounded to binary64."""
    c = np.float64(float.fromhex("0x1.00001p-53"))
    for k in (1, 2, 129, 2**32 - 1):
        a, b, last = np.float64(0.3), np.float64(7e-30), np.float64(-1.7e12)
        dot = ((np.float64(k) * c) * np.sqrt(a)) * np.sqrt(b)
        assert bound_of_products(k, a, b) == dot
        assert bound_of_products(k, a, b, last) == dot + (np.float64(k) * c) * abs(last)
        assert bound_of_sum(k, a) == (np.float64(k) * c) * a
