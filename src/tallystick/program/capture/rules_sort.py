"""Rules for sorting, selecting and searching, by the places of NUMERICS 3.9."""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.positions import positions, ranked, scattered
from tallystick.program.ir import Value


def order(lo: Lowerer, x: Value, dim: int, descending: bool = False) -> Value:
    """The indices that a stable sort of x gives: each position written to its place."""
    shape = lo.shape(x)
    if not shape:
        return lo.full((), 0, "i64")
    places = ranked(lo, x, dim, descending)
    return scattered(lo, lo.full(shape, 0, "i64"), dim, places, positions(lo, shape, dim))


def taken(lo: Lowerer, x: Value, dim: int, index: Value) -> Value:
    """x's elements at `index` along dim."""
    return lo.emit("aten.gather", x, index, dim=dim % max(len(lo.shape(x)), 1))


@lowering("aten.sort", "aten.sort.stable")
def _sort(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    index = order(lo, x, a["dim"], a["descending"])
    return [taken(lo, x, a["dim"], index), index]


def _some(lo: Lowerer, index: Value, dim: int, start: int, end: int) -> Value:
    """Of a row's indices those from start to end."""
    return lo.slice(index, dim, start, end) if lo.shape(index) else index


@lowering("aten.topk")
def _topk(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """In order, whether that is asked for or not. Of equal elements the first ones."""
    x = lo.value(a["self"])
    index = _some(lo, order(lo, x, a["dim"], a["largest"]), a["dim"], 0, a["k"])
    if lo.shape(index) != tuple(node.meta["val"][1].shape):
        index = lo.view(index, node.meta["val"][1].shape)
    return [taken(lo, x, a["dim"], index), index]


def _selected(lo: Lowerer, node: fx.Node, x: Value, dim: int, index: Value) -> Results:
    """x's one element of each row, and its index, with the shapes of torch's results."""
    shape = node.meta["val"][1].shape
    return [lo.view(taken(lo, x, dim, index), shape), lo.view(index, shape)]


@lowering("aten.kthvalue")
def _kthvalue(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, dim = lo.value(a["self"]), a["dim"]
    index = _some(lo, order(lo, x, dim), dim, a["k"] - 1, a["k"])
    return _selected(lo, node, x, dim, index)


def _median(lo: Lowerer, x: Value, dim: int) -> Value:
    """The index of each row's median, the lower of two; of a row with NaNs its first NaN's."""
    dim %= max(len(lo.shape(x)), 1)
    size = lo.shape(x)[dim] if lo.shape(x) else 1
    middle = _some(lo, order(lo, x, dim), dim, (size - 1) // 2, (size - 1) // 2 + 1)
    if lo.type(x).dtype != "f32" or not lo.shape(x):
        return middle
    greatest = lo.emit("aten.argmax", x, dim=dim, keepdim=True)
    found = taken(lo, x, dim, greatest)
    return lo.emit("aten.where", lo.emit("aten.ne.Tensor", found, found), greatest, middle)


@lowering("aten.median.dim")
def _median_dim(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    return _selected(lo, node, x, a["dim"], _median(lo, x, a["dim"]))


@lowering("aten.median")
def _median_all(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.view(lo.value(a["self"]), (lo.type(lo.value(a["self"])).numel,))
    if lo.type(x).numel == 0 and lo.type(x).dtype == "f32":
        return lo.full((), math.nan, "f32")
    return lo.view(taken(lo, x, 0, _median(lo, x, 0)), ())


# -- searching ----------------------------------------------------------------------------------


def _searched(lo: Lowerer, node: fx.Node, bounds: Value, x: Any, right: bool) -> Results:
    """How many of a row's bounds stand before each x: those that are not above it (`right`), or
    not above and not equal to it. A NaN has all of them before it.

    By torch's own binary search, so that bounds with NaN among them give torch's answers too.
    """
    result = lo.result(node)
    values = lo.value(x) if isinstance(x, fx.Node) else lo.full((), x, lo.type(bounds).dtype)
    kinds = (lo.type(bounds).dtype, lo.type(values).dtype)
    kind = "f32" if "f32" in kinds else "i64"
    bounds, values = lo.cast(bounds, kind), lo.cast(values, kind)
    if len(lo.shape(bounds)) == 1:
        values = lo.view(values, (lo.type(values).numel,))
    found = _halving(lo, bounds, values, "aten.gt.Tensor" if right else "aten.ge.Tensor")
    return lo.cast(lo.view(found, result.shape), result.dtype)


def _halving(lo: Lowerer, bounds: Value, values: Value, after: str) -> Value:
    """i64, of values' shape: where the search ends. In every row as many steps as the longest.

    The part that is left of a row has `most` bounds or one less; `less` (0 or 1) says which.
    """
    shape, dim = lo.shape(values), len(lo.shape(values)) - 1
    size = most = lo.shape(bounds)[dim]
    start = less = lo.full(shape, 0, "i64")
    while most and lo.type(values).numel:
        half = most // 2
        middle = lo.emit("aten.add.Scalar", start, other=half, alpha=1)
        if most % 2 == 0:
            middle = lo.emit("aten.sub.Tensor", middle, less, alpha=1)
        at = lo.emit("aten.clamp", middle, max=size - 1) if most == 1 else middle
        bound = lo.emit("aten.gather", bounds, at, dim=dim)
        before = lo.emit("aten.logical_not", lo.emit(after, bound, values))
        if most == 1:  # a part of no bounds is done
            whole = lo.emit("aten.eq.Scalar", less, other=0)
            before = lo.emit("aten.logical_and", before, whole)
        behind = lo.emit("aten.add.Scalar", middle, other=1, alpha=1)
        start = lo.emit("aten.where", before, behind, start)
        join = "aten.maximum" if most % 2 == 0 else "aten.minimum"
        if half:
            less = lo.emit(join, less, lo.cast(before, "i64"))
        most = half
    return start


@lowering("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def _searchsorted(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    bounds = lo.value(a["sorted_sequence"])
    if a["sorter"] is not None:
        bounds = taken(lo, bounds, -1, lo.value(a["sorter"]))
    return _searched(lo, node, bounds, a["self"], a["right"] or a["side"] == "right")


@lowering("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def _bucketize(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _searched(lo, node, lo.value(a["boundaries"]), a["self"], a["right"])
