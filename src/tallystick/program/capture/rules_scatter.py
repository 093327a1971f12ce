"""Rules for writing by index: scatter and what is made of it (NUMERICS 4.3, 9.3)."""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.positions import (
    assigned_rows,
    by_mask,
    corner,
    ordinals,
    scattered,
)
from tallystick.program.capture.rules_index import added_along
from tallystick.program.capture.rules_sort import order, taken
from tallystick.program.ir import Value


@lowering("aten.scatter.src")
def _scatter_src(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index, source = (lo.value(a[k]) for k in ("self", "index", "src"))
    return scattered(lo, x, a["dim"], index, source)


@lowering("aten.scatter.value")
def _scatter_value(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index = lo.value(a["self"]), lo.value(a["index"])
    source = lo.full(lo.shape(index), a["value"], lo.type(x).dtype)
    return scattered(lo, x, a["dim"], index, source)


@lowering("aten.index_copy")
def _index_copy(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index, source = (lo.value(a[k]) for k in ("self", "index", "source"))
    shape = lo.shape(x)
    count = lo.type(index).numel
    dim, own = a["dim"] % max(len(shape), 1), shape or (1,)
    rows = lo.view(source, (*own[:dim], count, *own[dim + 1 :]))
    listed = lo.view(lo.cast(index, "i64"), (count,))
    return lo.view(assigned_rows(lo, lo.view(x, own), dim, listed, rows), shape)


# -- reductions ---------------------------------------------------------------------------------


def _refused(reduce: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"A scatter with reduce={reduce!r} is not defined by the contract.",
        "Use sum, mean, amax or amin, or sums of logarithms.",
    )


def _extreme(
    lo: Lowerer, x: Value, dim: int, index: Value, source: Value, least: bool, own: bool
) -> Value:
    """Sources in ascending order, so that the greatest is the last and stays; NaN is the greatest
    of both, as in 1.11. With `own`, x's element counts too."""
    turned = least and lo.type(x).dtype == "f32"  # of −x the greatest: the same bits but the sign
    if turned:
        x, source = lo.emit("aten.neg", x), lo.emit("aten.neg", source)
    by = order(lo, source, dim, descending=least and not turned)
    found = scattered(lo, x, dim, taken(lo, index, dim, by), taken(lo, source, dim, by))
    if own:
        found = lo.emit("aten.minimum" if least and not turned else "aten.maximum", x, found)
    return lo.emit("aten.neg", found) if turned else found


def _reduced(
    lo: Lowerer, x: Value, dim: int, index: Value, source: Value, reduce: str, own: bool
) -> Value:
    """x with the sources of each element reduced into it; without `own`, of the sources alone."""
    if lo.type(index).numel == 0:
        return x
    shape = lo.shape(x)
    x = lo.view(x, shape or (1,))
    index = lo.cast(lo.view(index, lo.shape(index) or (1,)), "i64")
    source = corner(lo, source, lo.shape(index))
    if reduce in ("amax", "amin"):
        return lo.view(_extreme(lo, x, dim, index, source, reduce == "amin", own), shape)
    if reduce not in ("sum", "mean", "add"):
        raise _refused(reduce)
    kind = lo.type(source).dtype

    def each(value: int) -> Value:
        return lo.full(lo.shape(index), value, kind)

    if not own:
        x = scattered(lo, x, dim, index, each(0))
    total = added_along(lo, x, dim, index, source)
    if reduce == "mean":
        begun = lo.full(lo.shape(x), 1, kind)
        begun = begun if own else scattered(lo, begun, dim, index, each(0))
        total = lo.emit("aten.div.Tensor", total, added_along(lo, begun, dim, index, each(1)))
    return lo.view(total, shape)


@lowering("aten.scatter_reduce.two")
def _scatter_reduce(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index, source = (lo.value(a[k]) for k in ("self", "index", "src"))
    return _reduced(lo, x, a["dim"], index, source, a["reduce"], a["include_self"])


@lowering("aten.scatter.reduce", "aten.scatter.value_reduce")
def _scatter_with(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index = lo.value(a["self"]), lo.value(a["index"])
    if "src" in a:
        source = lo.value(a["src"])
    else:
        source = lo.full(lo.shape(index), a["value"], lo.type(x).dtype)
    return _reduced(lo, x, a["dim"], index, source, a["reduce"], True)


@lowering("aten.index_reduce")
def _index_reduce(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index, source = (lo.value(a[k]) for k in ("self", "index", "source"))
    rows, count = lo.shape(source) or (1,), lo.type(index).numel
    dim = a["dim"] % len(rows)
    column = lo.view(lo.cast(index, "i64"), (count, *(1,) * (len(rows) - 1 - dim)))
    spread = lo.expand(column, rows)
    return _reduced(lo, x, dim, spread, lo.view(source, rows), a["reduce"], a["include_self"])


# -- masks --------------------------------------------------------------------------------------


def _list(lo: Lowerer, x: Value) -> Value:
    return lo.view(x, (lo.type(x).numel,))


@lowering("aten.masked_scatter")
def _masked_scatter(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """The source's elements in order, one for each true element of the mask."""
    shape = lo.result(node).shape
    x, mask = (lo.expand(lo.value(a[k]), shape) for k in ("self", "mask"))
    source = _list(lo, lo.value(a["source"]))
    if math.prod(shape) == 0:
        return x
    return lo.view(by_mask(lo, _list(lo, x), _list(lo, mask), source), shape)


@lowering("aten.masked_scatter_backward")
def _masked_scatter_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """The gradient of the source: that of the true elements in order, then zeros."""
    result: Any = lo.result(node)
    grad = lo.value(a["grad_output"])
    mask = _list(lo, lo.expand(lo.value(a["mask"]), lo.shape(grad)))
    count = math.prod(result.shape)
    if lo.type(grad).numel == 0 or count == 0:
        return lo.full(result.shape, 0, result.dtype)
    # What is false goes to one place more, which is cut off.
    places = lo.emit("aten.where", mask, ordinals(lo, mask), lo.full((), count, "i64"))
    zeros = lo.full((count + 1,), 0, result.dtype)
    made = scattered(lo, zeros, 0, places, _list(lo, grad))
    return lo.view(lo.slice(made, 0, 0, count), result.shape)
