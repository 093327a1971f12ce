"""Rules for sorting, selecting and searching, by the places of NUMERICS 3.9; and compositions
of what a sort gives: medians without NaN, modes, histograms, true positions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from tallystick.program.capture.decompose import composition
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


def _row(x: Tensor) -> Tensor:
    return x.reshape(1) if x.dim() == 0 else x


def _picked(x: Tensor, dim: int, index: Tensor, keepdim: bool) -> tuple[Tensor, Tensor]:
    """x's elements at one index of each row, and the indices."""
    row = _row(x)
    found, at = row.gather(dim, index), index
    if x.dim() == 0:
        return found.reshape(()), at.reshape(())
    return (found, at) if keepdim else (found.squeeze(dim), at.squeeze(dim))


@composition("aten.nanmedian.dim")
def _nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower median of what is no NaN; of NaNs alone the first."""
    row = _row(x)
    numbers = (row == row).sum(dim, keepdim=True)
    middle = torch.floor_divide(numbers - 1, 2).clamp(min=0)
    index = torch.sort(row, dim=dim, stable=True)[1].gather(dim, middle)
    return _picked(x, dim, index, keepdim)


@composition("aten.nanmedian")
def _nanmedian(x: Tensor) -> Tensor:
    if x.numel() == 0 and x.is_floating_point():
        return torch.full((), math.nan, dtype=x.dtype, device=x.device)
    return torch.nanmedian(x.reshape(-1), 0)[0]


@composition("aten.mode")
def _mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the most frequent elements, and of it the last one's index.

    In order, the k-th element stands k − start + 1 in its run, whose start is the last place with
    another element before it.
    """
    row = _row(x)
    values, index = torch.sort(row, dim=dim, stable=True)
    size = row.shape[dim]
    shape = [1] * row.dim()
    shape[dim] = size
    place = torch.arange(size, device=x.device).reshape(shape).expand(row.shape)
    before = torch.cat([values.narrow(dim, 0, 1), values.narrow(dim, 0, size - 1)], dim)
    start = torch.cummax(torch.where(values != before, place, 0), dim)[0]
    most = torch.argmax(place - start, dim, keepdim=True)
    if x.is_floating_point():
        # No NaN equals another. Where nothing stands twice, torch's kernel takes a NaN first.
        is_nan = (values != values).to(torch.int64)
        single = (place - start).amax(dim, keepdim=True) == 0
        first = torch.argmax(is_nan, dim, keepdim=True)
        most = torch.where(single & (is_nan.amax(dim, keepdim=True) > 0), first, most)
    return _picked(x, dim, index.gather(dim, most), keepdim)


@composition("aten.histc")
def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts of equal bins from min to max, the last one with its end; of the elements' own range
    where min = max."""
    flat = x.reshape(-1)
    low = torch.full((), min, dtype=x.dtype, device=x.device)
    high = torch.full((), max, dtype=x.dtype, device=x.device)
    if min == max and flat.numel():
        low, high = flat.min(), flat.max()
        low, high = (torch.where(low == high, v + s, v) for v, s in ((low, -1.0), (high, 1.0)))
    elif min == max:
        low, high = low - 1.0, high + 1.0
    inside = (flat >= low) & (flat <= high)
    scaled = (torch.where(inside, flat, low) - low) * float(bins) / (high - low)
    place = scaled.to(torch.int64).clamp(0, bins - 1)
    counts = torch.zeros(bins, dtype=x.dtype, device=x.device)
    return counts.index_add(0, place, inside.to(x.dtype))


@lowering("aten.nonzero_static")
def _nonzero_static(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """The coordinates of the first `size` elements that are not 0; `fill_value` beyond them."""
    x, size, fill = lo.value(a["self"]), int(a["size"]), a["fill_value"]
    shape, total = lo.shape(x), lo.type(x).numel
    if size == 0 or not shape or total == 0:
        return lo.full(lo.result(node).shape, fill, "i64")
    mask = lo.view(lo.cast(x, "bool"), (total,))
    first = lo.slice(order(lo, mask, 0, descending=True), 0, 0, min(size, total))
    count, here = lo.emit("aten.sum", mask), min(size, total)
    number = lo.emit("aten.arange", start=0, end=here, step=1, dtype="i64")
    there = lo.view(lo.emit("aten.lt.Tensor", number, count), (here, 1))
    columns: list[Value] = []
    rest = first
    for n in reversed(shape):
        divisor = lo.full((), n, "i64")
        quotient = lo.emit("aten.floor_divide", rest, divisor)
        whole = lo.emit("aten.mul.Scalar", quotient, other=n)
        columns.insert(0, lo.view(lo.emit("aten.sub.Tensor", rest, whole, alpha=1), (here, 1)))
        rest = quotient
    found = lo.emit("aten.cat", *columns, dim=1) if len(columns) > 1 else columns[0]
    found = lo.emit("aten.where", there, found, lo.full((), fill, "i64"))
    if here < size:
        found = lo.emit("aten.cat", found, lo.full((size - here, len(shape)), fill, "i64"), dim=0)
    return found
