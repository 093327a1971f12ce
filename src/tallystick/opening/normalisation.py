"""Opening rules of softmax and layer_norm with their gradients (NUMERICS 6.1 - 6.6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from tallystick.numerics.operators.common import axis_of, integer, integers, number
from tallystick.numerics.types import TensorType
from tallystick.opening.arithmetic import fma, function, only, quotient, rn32
from tallystick.opening.quantity import (
    Array,
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
class Row:
    """`count` elements of a tensor, `stride` apart from row-major position `base` on."""

    base: int
    stride: int
    count: int

    def read(self, source: Source, operand: int, index: Index) -> Array:
        """Elements number `index` of the row, of an operand laid out as the tensor is."""
        return source.read(operand, self.base + index * self.stride)


def row_maximum(row: Row, operand: int) -> Extremum:
    """The intermediate *m* of a row (NUMERICS 6.1, 7.1)."""
    return Extremum("m", "f32", row.count, "max", lambda s, _, i: row.read(s, operand, i))


def exponential_sum(row: Row, operand: int, maximum: Extremum) -> Tree:
    """The intermediate *s* of a row: SUM(exp(x_i - m)) (NUMERICS 6.1, 7.1)."""

    @np.errstate(all="ignore")
    def terms(source: Source, needs: Needs, index: Index) -> Array:
        return function("aten.exp", row.read(source, operand, index) - needs[0])

    return Tree("s", "f32", row.count, terms, (maximum,))


def _at(position: int) -> Index:
    return np.array([position], dtype=np.int64)


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
def _softmax_row(site: Site) -> tuple[Row, Index]:
    """The row along `dim` that the element is in, and its place there."""
    shape = site.outputs[0].shape or (1,)
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(shape))
    count, inner = shape[axis], math.prod(shape[axis + 1 :])
    base = site.element // (count * inner) * (count * inner) + site.element % inner
    return Row(base, inner, count), _at(site.element // inner % count)


@opening("aten._softmax")
def _softmax(site: Site) -> Quantity:
    row, i = _softmax_row(site)
    m = row_maximum(row, 0)

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        return only(function("aten.exp", row.read(source, 0, i) - needs[0]) / needs[1])

    return Local("y", "f32", compute, (m, exponential_sum(row, 0, m)))


@opening("aten._log_softmax")
def _log_softmax(site: Site) -> Quantity:
    row, i = _softmax_row(site)
    m = row_maximum(row, 0)
    s = exponential_sum(row, 0, m)
    log_s = Local("l", "f32", lambda _, needs: function("aten.log", needs)[0], (s,))

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        return only((row.read(source, 0, i) - needs[0]) - needs[1])

    return Local("y", "f32", compute, (m, log_s))


@opening("aten._softmax_backward_data")
def _softmax_backward(site: Site) -> Quantity:
    row, i = _softmax_row(site)

    @np.errstate(all="ignore")
    def terms(source: Source, _: Needs, index: Index) -> Array:
        return row.read(source, 0, index) * row.read(source, 1, index)

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        return only(row.read(source, 1, i) * (row.read(source, 0, i) - needs[0]))

    return Local("out", "f32", compute, (Tree("s", "f32", row.count, terms),))


@opening("aten._log_softmax_backward_data")
def _log_softmax_backward(site: Site) -> Quantity:
    row, i = _softmax_row(site)
    s = Tree("s", "f32", row.count, lambda source, _, index: row.read(source, 0, index))

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        exponential = function("aten.exp", row.read(source, 1, i))
        return only(row.read(source, 0, i) - exponential * needs[0])

    return Local("out", "f32", compute, (s,))


# --- layer_norm (6.5, 6.6) ------------------------------------------------------------------------
def _average(name: str, total: Tree) -> Local:
    """`total` / RN32(n)."""

    @np.errstate(all="ignore")
    def compute(_: Source, needs: Needs) -> Array:
        return quotient(needs[0], total.count)

    return Local(name, "f32", compute, (total,))


@opening("aten.native_layer_norm")
def _layer_norm(site: Site) -> Quantity:
    n = math.prod(integers(site.attrs, "normalized_shape"))
    number_of_row = site.element // n if site.out == 0 else site.element
    row = Row(number_of_row * n, 1, n)
    mean = _average("mean", Tree("SUM(x)", "f32", n, lambda s, _, i: row.read(s, 0, i)))
    if site.out == 1:
        return mean

    @np.errstate(all="ignore")
    def squares(source: Source, needs: Needs, index: Index) -> Array:
        d = row.read(source, 0, index) - needs[0]
        return cast(Array, d * d)

    var = _average("var", Tree("SUM(d*d)", "f32", n, squares, (mean,)))
    eps = rn32(number(site.attrs, "eps"))

    @np.errstate(all="ignore")
    def inverse_root(_: Source, needs: Needs) -> Array:
        return cast(Array, function("aten.rsqrt", needs[0] + eps)[0])

    rstd = Local("rstd", "f32", inverse_root, (var,))
    if site.out == 2:
        return rstd
    i = _at(site.element % n)
    weighted, biased = site.has(1), site.has(2)

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        h = (row.read(source, 0, i) - needs[0]) * needs[1]
        if weighted and biased:
            return only(fma(h, source.read(1, i), source.read(2, i)))
        if weighted:
            return only(h * source.read(1, i))
        return only(h + source.read(2, i) if biased else h)

    return Local("y", "f32", compute, (mean, rstd))


@opening("aten.native_layer_norm_backward")
def _layer_norm_backward(site: Site) -> Quantity:
    mask = site.attrs["output_mask"]
    assert isinstance(mask, tuple)
    gradient = [k for k, on in enumerate(mask) if on][site.out]  # outputs masked off do not exist
    n = math.prod(integers(site.attrs, "normalized_shape"))
    if gradient == 0:
        return _layer_norm_dx(site, n)
    x = site.inputs[1]
    assert isinstance(x, TensorType)
    column = Row(site.element, n, x.numel // n)  # dw and db: over the rows

    @np.errstate(all="ignore")
    def products(source: Source, _: Needs, index: Index) -> Array:
        return column.read(source, 0, index) * _normalised(source, column, index, index)

    def gradients(source: Source, _: Needs, index: Index) -> Array:
        return column.read(source, 0, index)

    if gradient == 1:
        return Tree("dw", "f32", column.count, products)
    return Tree("db", "f32", column.count, gradients)


def _normalised(source: Source, row: Row, index: Index, rows: Index) -> Array:
    """h = (x - mean) * rstd, with the statistics of rows number `rows` (NUMERICS 6.6)."""
    return (row.read(source, 1, index) - source.read(2, rows)) * source.read(3, rows)


def _layer_norm_dx(site: Site, n: int) -> Quantity:
    number_of_row = _at(site.element // n)
    row = Row(site.element // n * n, 1, n)
    weighted = site.has(4)

    @np.errstate(all="ignore")
    def k(source: Source, index: Index) -> Array:
        g = row.read(source, 0, index)
        return g * source.read(4, index) if weighted else g

    def h(source: Source, index: Index) -> Array:
        return _normalised(source, row, index, number_of_row)

    @np.errstate(all="ignore")
    def products(source: Source, _: Needs, index: Index) -> Array:
        return k(source, index) * h(source, index)

    s1 = _average("s1", Tree("SUM(k)", "f32", n, lambda s, _, index: k(s, index)))
    s2 = _average("s2", Tree("SUM(k*h)", "f32", n, products))
    i = _at(site.element % n)

    @np.errstate(all="ignore")
    def compute(source: Source, needs: Needs) -> Array:
        rest = (k(source, i) - needs[0]) - h(source, i) * needs[1]
        return only(rest * source.read(3, number_of_row))

    return Local("dx", "f32", compute, (s1, s2))
