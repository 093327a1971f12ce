"""Compositions of what a sort gives: medians without NaN, modes, histograms, true positions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from tallystick.program.capture.decompose import composition
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.rules_sort import order
from tallystick.program.ir import Value


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
