"""Writing by index and by mask, for the rules that do (NUMERICS 9.3), and places in an order."""

from __future__ import annotations

import math

from tallystick.program.capture.lower import Lowerer
from tallystick.program.capture.positions import progression
from tallystick.program.ir import Value

Shape = tuple[int, ...]


def along(lo: Lowerer, x: Value, index: Value) -> tuple[Value, Value]:
    """x and i64 indices with equally many axes: torch takes a scalar for a list of one."""
    rank = max(len(lo.shape(x)), len(lo.shape(index)))
    x, index = (v if len(lo.shape(v)) == rank else lo.view(v, (1,)) for v in (x, index))
    return x, lo.cast(index, "i64")


def positions(lo: Lowerer, shape: Shape, dim: int) -> Value:
    """i64: of every element its position along dim."""
    dim %= len(shape)
    places = progression(lo, 0, shape[dim], 1)
    return lo.expand(lo.view(places, (shape[dim], *(1,) * (len(shape) - 1 - dim))), shape)


def corner(lo: Lowerer, source: Value, shape: Shape) -> Value:
    """The first elements of each axis of `source`, as many as `shape` has: torch reads no more."""
    if len(lo.shape(source)) != len(shape):
        source = lo.view(source, shape)
    for dim, size in enumerate(shape):
        source = lo.slice(source, dim, 0, size)
    return source


def scattered(lo: Lowerer, x: Value, dim: int, index: Value, source: Value) -> Value:
    """x with `source` at `index` along dim; the last source in ascending order stays (9.3)."""
    shape = lo.shape(x)
    if lo.type(index).numel == 0:
        return x
    x, index = along(lo, x, index)
    source = corner(lo, source, lo.shape(index))
    made = lo.emit("aten.scatter.src", x, index, source, dim=dim % max(len(lo.shape(x)), 1))
    return lo.view(made, shape)


def assigned_rows(lo: Lowerer, x: Value, dim: int, index: Value, source: Value) -> Value:
    """x with the slices of `source` at the positions `index` (1-d) of axis `dim`."""
    shape = lo.shape(source)
    column = lo.view(index, (shape[dim], *(1,) * (len(shape) - 1 - dim)))
    return scattered(lo, x, dim, lo.expand(column, shape), source)


# -- masks --------------------------------------------------------------------------------------


def ranked(lo: Lowerer, x: Value, dim: int, descending: bool = False) -> Value:
    """The place of every element in its row's stable order (3.9)."""
    if lo.type(x).dtype not in ("f32", "i64"):
        x = lo.cast(x, "i64")
    dim %= max(len(lo.shape(x)), 1)
    return lo.emit("tallystick.rank", x, dim=dim, descending=descending)


def ordinals(lo: Lowerer, mask: Value) -> Value:
    """Of each true element of a list how many are true before it; of the others 0."""
    places = ranked(lo, mask, 0, descending=True)
    return lo.emit("aten.where", mask, places, lo.full((), 0, "i64"))


def by_mask(lo: Lowerer, x: Value, mask: Value, rows: Value) -> Value:
    """x, of which each slice whose `mask` (1-d) is true is the next one of `rows`.

    More true elements than rows are refused by the index that they give.
    """
    (count,), after = lo.shape(mask), lo.shape(x)[1:]
    taken = lo.emit("aten.index_select", rows, ordinals(lo, mask), dim=0)
    return lo.emit("aten.where", lo.view(mask, (count, *(1,) * len(after))), taken, x)


def as_many(lo: Lowerer, mask: Value, count: int) -> Value:
    """The mask, refused where not exactly `count` elements of it are true."""
    found = lo.emit("aten.sum", mask)
    excess = lo.view(lo.emit("aten.sub.Scalar", found, other=count, alpha=1), (1,))
    # Only the index 0 reads this one element, which is true.
    equal = lo.emit("aten.index_select", lo.full((1,), 1, "bool"), excess, dim=0)
    return lo.emit("aten.logical_and", mask, equal)


def assigned_by_mask(lo: Lowerer, x: Value, mask: Value, rows: Value) -> Value:
    """x[mask] = rows, one row for each true element; the mask is of x's first axes."""
    shape, rank = lo.shape(x), len(lo.shape(mask))
    count, after = math.prod(shape[:rank]), shape[rank:]
    flat = lo.view(mask, (count,))
    given = lo.shape(rows)
    flat = as_many(lo, flat, given[0])
    rows = lo.expand(rows, (given[0], *after))
    return lo.view(by_mask(lo, lo.view(x, (count, *after)), flat, rows), shape)
