"""What is told of many elements at once, against fractions (NUMERICS 14.5 to 14.7)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from reference.logs import Element, number, order

from tallystick.contracts.replay.boundaries import (
    around,
    boundaries,
    indices_of,
    read_beyond_doubt,
    values_at,
)
from tallystick.numerics.grid import Grid

SIZES = (2.0**-149, 2.0**-127, 2.0**-126, 1e-30, 0.7, 1.0, 3e4, 2.0**127)


def samples(bits: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[Element]]:
    """w f64[n], E f64[n], and elements whose v* is within E of w, often at its ends; w lies a few
    E from a boundary, and E is a hundredth to several steps of the grid."""
    rng = np.random.default_rng(seed)
    w, bound, elements = [], [], []
    grid = Grid(bits)
    for size in SIZES:
        for _ in range(60):
            index = grid.nearest(int(size * 2.0**149 * rng.uniform(0.9, 1.2)), 149)
            index = min(index, grid.infinity - 1) * int(rng.choice((-1, 1)))
            step = float(abs(number(order_of(index + 1, bits)) - number(order_of(index, bits))))
            e = step * 2.0 ** rng.uniform(-6, 1.5)
            at = float(boundaries(np.array([index]), bits)[0]) + e * rng.uniform(-5, 5)
            off = Fraction(e) * Fraction(float(rng.choice((-1.0, -0.9, 0.0, 0.5, 1.0))))
            w.append(at)
            bound.append(e)
            elements.append(Element([Fraction(at) + off], e, bits))
    return np.array(w), np.array(bound), elements


def order_of(index: int, bits: int) -> int:
    return index << (32 - bits) if index >= 0 else -(-index << (32 - bits))


@pytest.mark.parametrize("bits", [32, 31, 26, 20])
def test_many_elements_at_once(bits: int) -> None:
    w, bound, elements = samples(bits, bits)
    near = around(w, bound, bits)
    seen = {"none": 0, "close": 0, "more": 0, "forged": 0, "honest": 0, "left": 0}
    for k, element in enumerate(elements):
        low, high = order_of(int(near.low[k]), bits), order_of(int(near.high[k]), bits)
        assert low <= element.v[0] <= element.v[-1] <= high
        steps = int(near.high[k] - near.low[k])
        seen["none" if steps == 0 else "close" if near.close[k] else "more"] += 1
        assert not near.close[k] or steps == 1
        if near.close[k]:
            boundary = (number(low) + number(high)) / 2
            assert abs(Fraction(float(w[k])) - boundary) <= 2 * Fraction(float(bound[k]))
    for direction in (0, 1):
        given = np.full(len(w), direction)
        forged, honest = read_beyond_doubt(w, bound, near, given, bits)
        for k, element in enumerate(elements):
            assert not (forged[k] or honest[k]) or near.low[k] == near.high[k]
            assert not forged[k] or element.forged(direction)
            assert not honest[k] or not element.forged(direction)
            seen["forged" if forged[k] else "honest" if honest[k] else "left"] += 1
    assert min(seen.values()) > 20, seen


@pytest.mark.parametrize("bits", [32, 25, 20])
def test_indices_are_the_grids(bits: int) -> None:
    grid = Grid(bits)
    indices = [0, 1, 2, 5, (1 << (bits - 9)) - 1, 1 << (bits - 9), grid.infinity - 1, grid.infinity]
    both = np.array(sorted({s * i for i in indices for s in (1, -1)}))
    values = values_at(both, bits)
    assert [grid.value(i).tobytes() for i in both.tolist()] == [v.tobytes() for v in values]
    assert indices_of(values, bits).tolist() == both.tolist()
    inner = both[:-1]
    inner = inner[np.abs(inner) < grid.infinity]
    exact = [Fraction(grid.boundary(i), 2 << 150) for i in inner.tolist()]
    assert [Fraction(float(x)) for x in boundaries(inner, bits)] == exact
    assert order(0x80000001) == -1
