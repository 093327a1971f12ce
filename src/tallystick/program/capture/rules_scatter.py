"""Rules for writing by index: scatter and what is made of it (NUMERICS 4.3, 9.3)."""

from __future__ import annotations

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.ir import Value


def along(lo: Lowerer, x: Value, index: Value) -> tuple[Value, Value]:
    """x and i64 indices with equally many axes: torch takes a scalar for a list of one."""
    rank = max(len(lo.shape(x)), len(lo.shape(index)))
    x, index = (v if len(lo.shape(v)) == rank else lo.view(v, (1,)) for v in (x, index))
    return x, lo.cast(index, "i64")


def positions(lo: Lowerer, shape: tuple[int, ...], dim: int) -> Value:
    """i64: of every element its position along dim."""
    dim %= len(shape)
    places = lo.emit("aten.arange", start=0, end=shape[dim], step=1, dtype="i64")
    return lo.expand(lo.view(places, (shape[dim], *(1,) * (len(shape) - 1 - dim))), shape)


def corner(lo: Lowerer, source: Value, shape: tuple[int, ...]) -> Value:
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


@lowering("aten.scatter.src")
def _scatter_src(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index, source = (lo.value(a[k]) for k in ("self", "index", "src"))
    return scattered(lo, x, a["dim"], index, source)


@lowering("aten.scatter.value")
def _scatter_value(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index = lo.value(a["self"]), lo.value(a["index"])
    source = lo.full(lo.shape(index), a["value"], lo.type(x).dtype)
    return scattered(lo, x, a["dim"], index, source)
