"""Opening rules of reductions: sums, means, extremes, argmax and variance (NUMERICS 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.numerics.operators.common import axis_of, integer, number
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.opening.arithmetic import accumulated, canonical, quotient, rn32
from tallystick.opening.quantity import (
    LIMIT,
    Array,
    Chain,
    Extremum,
    Index,
    Local,
    Needs,
    Quantity,
    Site,
    Source,
    Tree,
    opening,
)


@dataclass(frozen=True)
class Reduced:
    """The elements of operand 0 that go into one output element, as one index (NUMERICS 3.3).

    `axes` are (size, stride) of the reduced axes, neighbours merged, outermost first.
    """

    base: int
    count: int
    axes: tuple[tuple[int, int], ...]

    def read(self, source: Source, index: Index) -> Array:
        flat = np.full(index.shape, self.base, dtype=np.int64)
        for size, stride in reversed(self.axes):
            flat += index % size * stride
            index = index // size
        return source.read(0, flat)

    def value(self, source: Source, _: Needs, index: Index) -> Array:
        """`read` as the terms of a tree or the elements of an extremum."""
        return self.read(source, index)


def reduced(site: Site) -> Reduced:
    shape = site.type_of(0).shape
    axes = reduced_axes(site.op, site.attrs, len(shape))
    base, rest, merged = 0, site.element, list[tuple[int, int]]()
    for axis in reversed(range(len(shape))):
        size, stride = shape[axis], math.prod(shape[axis + 1 :])
        if axis not in axes:
            rest, coordinate = divmod(rest, size)
            base += coordinate * stride
        elif merged and merged[0][0] * merged[0][1] == stride:
            merged[0] = (size * merged[0][0], merged[0][1])
        else:
            merged.insert(0, (size, stride))
    return Reduced(base, math.prod(shape[a] for a in axes), tuple(merged))


# --- sum and mean (3.4) ---------------------------------------------------------------------------
@opening("aten.sum", "aten.sum.dim_IntList")
def _sum(site: Site) -> Quantity:
    row, dtype = reduced(site), site.outputs[0].dtype
    if dtype == "f32":
        return Tree("SUM(x)", "f32", row.count, row.value)

    def integers(source: Source, _: Needs, index: Index) -> Array:
        return row.read(source, index).astype(np.int64)

    return Tree("SUM(x)", "i64", row.count, integers)


@opening("aten.mean", "aten.mean.dim")
def _mean(site: Site) -> Quantity:
    row = reduced(site)

    @np.errstate(all="ignore")
    def compute(_: Source, needs: Needs) -> Array:
        return quotient(needs[0], row.count)

    return Local("mean", "f32", compute, (Tree("SUM(x)", "f32", row.count, row.value),))


# --- extremes (3.5) -------------------------------------------------------------------------------
@opening("aten.amax", "aten.amin", "aten.max", "aten.min", "aten.argmax")
def _extreme(site: Site) -> Quantity:
    row, dtype = reduced(site), site.outputs[0].dtype
    kind = "argmax" if site.op == "aten.argmax" else site.op[-3:]
    return Extremum(kind, dtype, row.count, kind, row.value)


# --- variance and sum of squares (3.6, 3.7) -------------------------------------------------------
@opening("aten.var_mean.correction")
def _var_mean(site: Site) -> Quantity:
    row = reduced(site)

    def wide(source: Source, _: Needs, index: Index) -> Array:
        return row.read(source, index).astype(np.float64)

    @np.errstate(all="ignore")
    def average(_: Source, needs: Needs) -> Array:
        return canonical(needs[0] / np.float64(row.count))

    mean = Local("mean", "f64", average, (Tree("SUM64(x)", "f64", row.count, wide),))
    if site.out == 1:
        return Local("RN32(mean)", "f32", lambda _, needs: canonical(rn32(needs[0])), (mean,))

    @np.errstate(all="ignore")
    def squares(source: Source, needs: Needs, index: Index) -> Array:
        d: Array = wide(source, needs, index) - needs[0]
        return d * d

    divisor = np.float64(max(float(row.count) - number(site.attrs, "correction"), 0.0))

    @np.errstate(all="ignore")
    def variance(_: Source, needs: Needs) -> Array:
        return canonical(rn32(needs[0] / divisor))

    total = Tree("SUM64(d*d)", "f64", row.count, squares, (mean,))
    return Local("RN32(var)", "f32", variance, (total,))


@opening("tallystick.sum_squares")
def _sum_squares(site: Site) -> Quantity:
    row = reduced(site)

    @np.errstate(all="ignore")
    def squares(source: Source, _: Needs, index: Index) -> Array:
        x = row.read(source, index)
        return x * x

    return Tree("SUM(x*x)", "f32", row.count, squares)


# --- cumulative sum (3.8) -------------------------------------------------------------------------
@opening("aten.cumsum")
def _cumsum(site: Site) -> Quantity:
    """A chain over the elements up to this one, in stretches of LIMIT additions."""
    shape = site.type_of(0).shape
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(shape))
    size, inner = (shape[axis], math.prod(shape[axis + 1 :])) if shape else (1, 1)
    row, column = divmod(site.element, inner)
    before, at = divmod(row, size)
    first_of_row = before * size * inner + column

    @np.errstate(all="ignore")
    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        index = first_of_row + np.arange(first, last, dtype=np.int64) * inner
        return accumulated(state, source.read(0, index), at + 1)

    # -0 is the exact identity of addition (3.2), so the first element is a term like the others.
    return Chain("y", "f32", at + 1, LIMIT, np.float32(-0.0), advance)
