"""Rules for reading and adding at positions that tensors give (NUMERICS 9, 4.3).

Several index tensors become one index into their axes taken as one. Where several contributions
meet in one place, they are added in row-major order of the index, as `index_add` adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.positions import (
    assigned_by_mask,
    assigned_rows,
    flat,
    from_zero,
    parted,
    scattered,
    take,
)
from tallystick.program.ir import Value

Shape = tuple[int, ...]


@lowering("aten.gather")
def _gather(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index = lo.value(a["self"]), lo.cast(lo.value(a["index"]), "i64")
    if not lo.type(index).numel:  # of any shape
        return lo.full(lo.shape(index), 0, lo.type(x).dtype)
    if not lo.shape(x):
        taken = take(lo, lo.view(x, (1,)), 0, lo.view(index, (lo.type(index).numel,)))
        return lo.view(taken, lo.shape(index))
    if not lo.shape(index):
        return lo.view(lo.emit("aten.gather", x, lo.view(index, (1,)), dim=0), ())
    return lo.emit("aten.gather", x, index, dim=a["dim"] % len(lo.shape(x)))


@lowering("aten.index_select")
def _index_select(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index = lo.value(a["self"]), lo.cast(lo.value(a["index"]), "i64")
    index = lo.view(index, (lo.type(index).numel,))
    if not lo.shape(x):
        return lo.view(take(lo, lo.view(x, (1,)), 0, index), ())
    return take(lo, x, a["dim"] % len(lo.shape(x)), index)


def _add_rows(lo: Lowerer, x: Value, dim: int, index: Value, source: Value, factor: Any) -> Value:
    if factor != 1:
        source = lo.emit("aten.mul.Scalar", source, other=factor)
    return lo.emit("aten.index_add", x, index, source, dim=dim)


@lowering("aten.index_add")
def _index_add(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index = lo.value(a["self"]), lo.cast(lo.value(a["index"]), "i64")
    count = lo.type(index).numel
    index, source = lo.view(index, (count,)), lo.value(a["source"])
    if lo.shape(x):
        return _add_rows(lo, x, a["dim"] % len(lo.shape(x)), index, source, a["alpha"])
    one = _add_rows(lo, lo.view(x, (1,)), 0, index, lo.view(source, (count,)), a["alpha"])
    return lo.view(one, ())


@lowering("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def _index_fill(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """`where` over the places of the axis that the index names."""
    x, result = lo.value(a["self"]), lo.result(node)
    index = lo.cast(lo.value(a["index"]), "i64")
    dim, shape = a["dim"] % max(len(result.shape), 1), result.shape or (1,)
    count, size = lo.type(index).numel, shape[dim]
    index = from_zero(lo, lo.view(index, (count,)), size)
    none, ones = lo.full((size,), 0, "f32"), lo.full((count,), 1, "f32")
    named = lo.emit("aten.gt.Scalar", _add_rows(lo, none, 0, index, ones, 1), other=0)
    named = lo.view(named, (size, *(1 for _ in shape[dim + 1 :])))
    if isinstance(a["value"], fx.Node):
        value = lo.cast(lo.value(a["value"]), result.dtype)
    else:
        value = lo.full((), a["value"], result.dtype)
    return lo.view(lo.emit("aten.where", named, value, lo.view(x, shape)), result.shape)


# -- index tensors ----------------------------------------------------------------------------


def _is_mask(lo: Lowerer, index: Any) -> bool:
    return index is not None and lo.type(lo.value(index)).dtype in ("bool", "u8")


class _Places:
    """What `x[indices]` names: x as (before, indexed axes, after), and one index into the middle.

    ATen's rule: the axes of the result's index stand where the indexed axes are, if these follow
    each other, and in front otherwise.
    """

    def __init__(self, lo: Lowerer, shape: Shape, indices: Sequence[Any]) -> None:
        axes = [i for i, v in enumerate(indices) if v is not None]
        if any(_is_mask(lo, indices[i]) for i in axes):
            raise UnsupportedOperatorError(
                "Reading by a mask has a shape that depends on the mask's values.",
                "Use torch.where or multiply by the mask, so that every element keeps its place.",
            )
        self.lo = lo
        gaps = axes[-1] - axes[0] + 1 != len(axes)
        first = 0 if gaps else axes[0]
        self.order = axes + [i for i in range(len(shape)) if i not in axes]
        if not gaps:
            self.order = list(range(len(shape)))
        self.shape: Shape = tuple(shape[i] for i in self.order)
        self.parted = parted(self.shape, first, len(axes))
        given = [lo.cast(lo.value(indices[i]), "i64") for i in axes]
        sizes = [shape[i] for i in axes]
        self.broadcast: Shape = np.broadcast_shapes(*(lo.shape(v) for v in given))
        self.result: Shape = (
            *self.shape[:first], *self.broadcast, *self.shape[first + len(axes) :]
        )  # fmt: skip
        given = [from_zero(lo, v, n) for v, n in zip(given, sizes, strict=True)]
        place = lo.expand(flat(lo, given, sizes), self.broadcast)
        self.index = lo.view(place, (lo.type(place).numel,))

    def middle(self, x: Value) -> Value:
        """x with the indexed axes as axis 1 of three."""
        return self.lo.view(self.lo.permute(x, self.order), self.parted)

    def restored(self, x: Value) -> Value:
        back = [self.order.index(d) for d in range(len(self.order))]
        return self.lo.permute(self.lo.view(x, self.shape), back)

    def read(self, x: Value) -> Value:
        return self.lo.view(take(self.lo, self.middle(x), 1, self.index), self.result)

    def _rows(self, values: Value) -> Value:
        before, _, after = self.parted
        count = self.lo.shape(self.index)[0]
        return self.lo.view(self.lo.expand(values, self.result), (before, count, after))

    def added(self, x: Value, values: Value) -> Value:
        source = self._rows(values)
        return self.restored(_add_rows(self.lo, self.middle(x), 1, self.index, source, 1))

    def assigned(self, x: Value, values: Value) -> Value:
        """Of several values for one place the last in row-major order stays (9.3)."""
        source = self._rows(values)
        return self.restored(assigned_rows(self.lo, self.middle(x), 1, self.index, source))


def _one_axis(lo: Lowerer, indices: Sequence[Any]) -> int | None:
    """The axis, where exactly one is indexed."""
    axes = [i for i, v in enumerate(indices) if v is not None]
    return axes[0] if len(axes) == 1 and not _is_mask(lo, indices[axes[0]]) else None


def _rows(lo: Lowerer, x: Value, dim: int, index: Any) -> tuple[Value, Value]:
    """The index from zero on, and as a list."""
    whole = from_zero(lo, lo.cast(lo.value(index), "i64"), lo.shape(x)[dim])
    return whole, lo.view(whole, (lo.type(whole).numel,))


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, dim = lo.value(a["self"]), _one_axis(lo, a["indices"])
    if dim is None:
        return _Places(lo, lo.shape(x), a["indices"]).read(x)
    taken = take(lo, x, dim, _rows(lo, x, dim, a["indices"][dim])[1])
    return lo.view(taken, lo.result(node).shape)


def _put_by_mask(lo: Lowerer, x: Value, a: Arguments, accumulate: bool) -> Value:
    """`where`: every place keeps its own, so the values may not be counted through the mask."""
    shape, indices = lo.shape(x), list(a["indices"])
    (first,) = [i for i, v in enumerate(indices) if v is not None]
    mask = lo.cast(lo.value(indices[first]), "bool")
    values, rank = lo.value(a["values"]), len(lo.shape(mask))
    after = len(shape) - first - rank
    given = lo.shape(values)
    if len(given) > after:
        cut = len(given) - after
        if given[cut - 1] != 1:
            if accumulate or cut != 1 or first:
                raise UnsupportedOperatorError(
                    "Adding one value per true element of a mask depends on the mask's values.",
                    "Use torch.where with values of the tensor's shape.",
                )
            return assigned_by_mask(lo, x, mask, values)
        values = lo.view(values, (*given[: cut - 1], *(1 for _ in range(rank)), *given[cut:]))
    condition = lo.view(mask, (*lo.shape(mask), *(1 for _ in range(after))))
    if accumulate:
        values = lo.emit("aten.add.Tensor", x, values, alpha=1)
    return lo.emit("aten.where", condition, values, x)


@lowering("aten.index_put", "aten._unsafe_index_put", "aten._index_put_impl")
def _index_put(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, indices = lo.value(a["self"]), a["indices"]
    given = [v for v in indices if v is not None]
    if len(given) == 1 and _is_mask(lo, given[0]):
        return _put_by_mask(lo, x, a, a["accumulate"])
    dim, values = _one_axis(lo, indices), lo.value(a["values"])
    if not a["accumulate"]:
        return _Places(lo, lo.shape(x), indices).assigned(x, values)
    if dim is None:
        return _Places(lo, lo.shape(x), indices).added(x, values)
    shape = lo.shape(x)
    whole, index = _rows(lo, x, dim, indices[dim])
    full_shape = shape[:dim] + lo.shape(whole) + shape[dim + 1 :]
    rows = (*shape[:dim], lo.shape(index)[0], *shape[dim + 1 :])
    return _add_rows(lo, x, dim, index, lo.view(lo.expand(values, full_shape), rows), 1)


# -- one index per element --------------------------------------------------------------------


def _narrow(lo: Lowerer, index: Value, shape: Shape, dim: int) -> Value | None:
    """The index before it was spread over whole axes behind `dim`, if it was."""
    made = lo.b.node_of(index)
    if made is None or made.op != "aten.expand" or lo.shape(index)[dim + 1 :] != shape[dim + 1 :]:
        return None
    source = made.inputs[0]
    assert source is not None
    known = lo.shape(source)
    lead = lo.shape(index)[: dim + 1]
    if len(known) != len(shape) or any(n != 1 for n in known[dim + 1 :]):
        return None
    return lo.view(lo.expand(source, (*lead, *known[dim + 1 :])), lead)


@lowering("aten.scatter_add")
def _scatter_add(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index = lo.value(a["self"]), lo.cast(lo.value(a["index"]), "i64")
    if not lo.type(index).numel:
        return x
    return added_along(lo, x, a["dim"], index, lo.value(a["src"]))


def added_along(lo: Lowerer, x: Value, dim: int, index: Value, source: Value) -> Value:
    """`index_add` on the axes up to `dim` taken as one, or on all, with the place in these."""
    shape, taken = lo.shape(x) or (1,), lo.shape(index) or (1,)
    dim %= len(shape)
    source = lo.view(source, lo.shape(source) or (1,))
    for axis, size in enumerate(taken):
        source = lo.slice(source, axis, 0, size)
    index = lo.view(index, taken)
    narrow = _narrow(lo, index, shape, dim)
    indexed = index if narrow is None else narrow
    rank = len(lo.shape(indexed))
    coordinates: list[Value | int | None] = list(lo.shape(indexed))
    coordinates[dim] = indexed
    place = flat(lo, coordinates, shape[:rank])
    count = lo.type(place).numel
    _, places, rest = parted(shape, 0, rank)
    added = _add_rows(
        lo,
        lo.view(x, (places, rest)),
        0,
        lo.view(place, (count,)),
        lo.view(source, (count, rest)),
        1,
    )
    return lo.view(added, lo.shape(x))


@lowering("aten.take")
def _take(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, index = lo.value(a["self"]), lo.cast(lo.value(a["index"]), "i64")
    total = lo.type(x).numel
    index = from_zero(lo, index, total)
    places = lo.view(index, (lo.type(index).numel,))
    return lo.view(take(lo, lo.view(x, (total,)), 0, places), lo.shape(index))


@lowering("aten.put")
def _put(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """With accumulate: the gradient of `take`."""
    x, index = lo.value(a["self"]), lo.cast(lo.value(a["index"]), "i64")
    total, count = lo.type(x).numel, lo.type(index).numel
    index = lo.view(from_zero(lo, index, total), (count,))
    source, listed = lo.view(lo.value(a["source"]), (count,)), lo.view(x, (total,))
    if not a["accumulate"]:
        return lo.view(scattered(lo, listed, 0, index, source), lo.shape(x))
    return lo.view(_add_rows(lo, listed, 0, index, source, 1), lo.shape(x))
