"""Positions along axes, for the rules that move data: list them, read, write and add at them; and
places in an order.

A program has no constant beside `full` and `arange`, so positions that are known at capture are
made of these. The contract's indices are never negative (NUMERICS 9.2). Writing is by index and by
mask (9.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tallystick.program.capture.lower import Lowerer
from tallystick.program.ir import Node, Value

# Operators whose elements are elements of their first operand.
_MOVES = ("view", "permute", "expand", "slice", "index_select", "gather", "tril", "triu")
# Operators whose i64 results are positions.
_FINDS = ("aten.argmax", "aten.max_pool2d_with_indices")


def progression(lo: Lowerer, start: int, count: int, step: int) -> Value:
    """start, start + step, … as i64[count]."""
    if step == 0:
        return lo.full((count,), start, "i64")
    return lo.emit("aten.arange", start=start, end=start + count * step, step=step, dtype="i64")


def runs(positions: Sequence[int]) -> list[tuple[int, int, int]]:
    """The positions as runs of one distance: (first, count, distance) of each."""
    found: list[list[int]] = []
    for at in positions:
        run = found[-1] if found else []
        if run and (len(run) == 1 or at - run[-1] == run[1] - run[0]):
            run.append(at)
        else:
            found.append([at])
    return [(r[0], len(r), r[1] - r[0] if len(r) > 1 else 1) for r in found]


def listed(lo: Lowerer, positions: Sequence[int]) -> Value:
    """The given positions as i64: one node per run, then `cat`."""
    made = [progression(lo, *run) for run in runs(positions)]
    if not made:
        return lo.full((0,), 0, "i64")
    return made[0] if len(made) == 1 else lo.emit("aten.cat", *made, dim=0)


def windows(lo: Lowerer, count: int, step: int, size: int, spacing: int) -> Value:
    """i64[count·size]: position w·step + t·spacing of every tap t of every window w, w first."""
    if count == 1 or size == 1:
        return progression(lo, 0, count * size, spacing if count == 1 else step)
    if step == size * spacing:
        return progression(lo, 0, count * size, spacing)
    first = lo.view(progression(lo, 0, count, step), (count, 1))
    taps = lo.view(progression(lo, 0, size, spacing), (1, size))
    return lo.view(lo.emit("aten.add.Tensor", first, taps, alpha=1), (count * size,))


def take(lo: Lowerer, x: Value, dim: int, index: Value) -> Value:
    """The positions `index` (1-d) of axis `dim`."""
    return lo.emit("aten.index_select", x, index, dim=dim)


def add_at(lo: Lowerer, size: int, dim: int, index: Value, source: Value) -> Value:
    """Zeros with `size` places along `dim`, and the slices of `source` added at `index`.

    Contributions to one place are added in the order in which they stand along `dim` (4.3). The
    last axis changes places with the one before: `index_add` moves runs behind `dim` at once.
    """
    shape = lo.shape(source)
    if dim == len(shape) - 1 and dim > 0 and shape[dim - 1] > 1:
        return lo.swap(
            add_at(lo, size, dim - 1, index, lo.swap(source, dim, dim - 1)), dim, dim - 1
        )
    zeros = lo.full((*shape[:dim], size, *shape[dim + 1 :]), 0, lo.type(source).dtype)
    return lo.emit("aten.index_add", zeros, index, source, dim=dim)


def from_zero(lo: Lowerer, index: Value, size: int) -> Value:
    """The index with negative positions counted from the axis's end, as torch reads them."""
    if never_negative(lo, index):
        return index
    below = lo.emit("aten.lt.Scalar", index, other=0)
    back = lo.emit("aten.add.Scalar", index, other=size, alpha=1)
    return lo.emit("aten.where", below, back, index)


def never_negative(lo: Lowerer, value: Value) -> bool:
    """Whether the nodes that made an integer value show that no element is negative."""
    node = lo.b.node_of(value)
    if node is None:
        return lo.type(value).dtype in ("bool", "u8")
    known = _constant(node)
    if known is not None:
        return known
    made_of = [v for v in node.inputs if v is not None]
    name = node.op.removeprefix("aten.")
    if name in _MOVES:
        return never_negative(lo, made_of[0])
    if name in ("add.Tensor", "mul.Tensor", "minimum", "cat"):
        return node.attrs.get("alpha", 1) >= 0 and all(  # type: ignore[operator]
            never_negative(lo, v) for v in made_of
        )
    if name in ("add.Scalar", "mul.Scalar"):
        factor = node.attrs["other"], node.attrs.get("alpha", 1)
        return all(f >= 0 for f in factor) and never_negative(lo, made_of[0])  # type: ignore[operator]
    if name == "where":
        return all(never_negative(lo, v) for v in made_of[1:])
    if name in ("_to_copy", "sum", "sum.dim_IntList"):
        return lo.type(made_of[0]).dtype in ("bool", "u8") or (
            lo.type(made_of[0]).dtype != "f32" and never_negative(lo, made_of[0])
        )
    return False


def _constant(node: Node) -> bool | None:
    """`never_negative` of a node that its name and attributes decide, else None."""
    attrs = node.attrs
    if node.op in _FINDS:
        return True
    if node.op == "aten.full":
        return attrs["value"] >= 0  # type: ignore[operator]
    if node.op == "aten.arange":
        start, step = attrs["start"], attrs["step"]
        assert isinstance(start, float) and isinstance(step, float)
        count = node.out_types[0].shape[0]
        return count == 0 or min(start, start + (count - 1) * step) >= 0
    if node.op == "aten.clamp" and attrs.get("min", -1) >= 0:  # type: ignore[operator]
        return True
    return None


def never_beyond(lo: Lowerer, value: Value, size: int) -> bool:
    """Whether the nodes that made an integer value show that every element is below `size`."""
    node = lo.b.node_of(value)
    if node is None:
        return False
    made_of = [v for v in node.inputs if v is not None]
    name, attrs = node.op.removeprefix("aten."), node.attrs
    if name in _MOVES:
        return never_beyond(lo, made_of[0], size)
    if name == "where":
        return all(never_beyond(lo, v, size) for v in made_of[1:])
    if name == "full":
        return attrs["value"] < size  # type: ignore[operator]
    if name == "clamp":
        return attrs.get("max", size) < size  # type: ignore[operator]
    if name == "arange":
        start, step = attrs["start"], attrs["step"]
        assert isinstance(start, float) and isinstance(step, float)
        count = node.out_types[0].shape[0]
        return count == 0 or max(start, start + (count - 1) * step) < size
    return False


def refusable(lo: Lowerer, index: Value, size: int, total: int) -> Value:
    """The index of an axis that is not a tensor's first; a place that the axis has not is far off.

    A row-major position made of it is then outside of the tensor of `total` elements, and refused
    (9.2). Otherwise it would be an element of another row.
    """
    outside = None
    if not never_negative(lo, index):
        outside = lo.emit("aten.lt.Scalar", index, other=0)
    if not never_beyond(lo, index, size):
        above = lo.emit("aten.ge.Scalar", index, other=size)
        outside = above if outside is None else lo.emit("aten.logical_or", outside, above)
    if outside is None:
        return index
    return lo.emit("aten.where", outside, lo.full((), -2 * max(total, 1), "i64"), index)


def flat(lo: Lowerer, coordinates: Sequence[Value | int | None], shape: Sequence[int]) -> Value:
    """Row-major position in a tensor of `shape`, from one broadcastable coordinate per axis.

    An int stands for the arange of an axis of that many places; None for position 0. A coordinate
    that its axis has not gives a position outside of the tensor.
    """
    rank, place, total = len(shape), None, math.prod(shape)
    for axis, (given, size) in enumerate(zip(coordinates, shape, strict=True)):
        if place is not None and size != 1:
            place = lo.emit("aten.mul.Scalar", place, other=size)
        if isinstance(given, int):
            column = [given if i == axis else 1 for i in range(rank)]
            given = lo.view(progression(lo, 0, given, 1), column) if given != 1 else None
        elif given is not None and axis > 0:
            given = refusable(lo, given, size, total)
        if given is not None:
            place = given if place is None else lo.emit("aten.add.Tensor", place, given, alpha=1)
    return lo.full((), 0, "i64") if place is None else place


def parted(shape: Sequence[int], first: int, count: int) -> tuple[int, int, int]:
    """Elements before, in and after `count` axes beginning with `first`."""
    end = first + count
    return math.prod(shape[:first]), math.prod(shape[first:end]), math.prod(shape[end:])


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
