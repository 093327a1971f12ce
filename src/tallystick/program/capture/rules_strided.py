"""Rules for `as_strided`: slices, permutations and repetitions of a whole storage; else by index.

Strides count in the storage. So the operand must be its whole storage, in any order of its axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.constants import MOST_ELEMENTS
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.rules_constant import write_constant
from tallystick.program.ir import Value


@dataclass(frozen=True)
class _Region:
    """Elements of a contiguous tensor: `size`, `stride` and `offset` in its storage.

    `order` brings the operand's axes into the order of the storage, whose shape is `shape`.
    """

    order: tuple[int, ...]
    shape: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, a: Arguments) -> _Region:
        x: Tensor = a["self"].meta["val"]
        # Axes of one element come last: their strides say nothing.
        steps = x.stride()
        order = sorted(range(x.dim()), key=lambda d: (x.shape[d] == 1, -steps[d], d))
        shape = tuple(int(x.shape[d]) for d in order)
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        dense = all(n == 1 or steps[d] == s for n, d, s in zip(shape, order, strides, strict=True))
        whole = x.untyped_storage().nbytes() == x.numel() * x.element_size()
        if not dense or not whole or x.storage_offset() != 0:
            raise UnsupportedOperatorError(
                "as_strided is defined on tensors that are their whole storage.",
                "Use slices, view, expand or permute.",
            )
        size, stride = (tuple(int(n) for n in a[k]) for k in ("size", "stride"))
        return cls(tuple(order), shape, size, stride, int(a["storage_offset"] or 0))

    def slices(self) -> _Slices | None:
        """The region as one slice per axis, if it is one."""
        steps = [math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        starts, offset = [], self.offset
        for n, step in zip(self.shape, steps, strict=True):
            start, offset = divmod(offset, step) if n > 1 else (0, offset)
            starts.append(start)
        if offset:
            return None
        taken = [(start, start + 1, 1) for start in starts]
        axis_of: dict[int, int] = {}
        for dim, (n, s) in enumerate(zip(self.size, self.stride, strict=True)):
            if n <= 1 or s == 0:
                continue
            fits = [
                k
                for k, step in enumerate(steps)
                if self.shape[k] > 1
                and s % step == 0
                and starts[k] + (n - 1) * (s // step) < self.shape[k]
            ]
            # Of axes that fit, the one with the largest step: the others would leave their row.
            if not fits or fits[0] in axis_of.values():
                return None
            k = fits[0]
            axis_of[dim] = k
            taken[k] = (starts[k], starts[k] + (n - 1) * (s // steps[k]) + 1, s // steps[k])
        within = all(0 <= a < n or n == 0 for (a, _, _), n in zip(taken, self.shape, strict=True))
        return _Slices(taken, axis_of) if within and 0 not in self.size else None

    def positions(self) -> list[int]:
        """The place of every element in the storage, in row-major order."""
        found = [self.offset]
        for n, s in zip(self.size, self.stride, strict=True):
            found = [at + i * s for at in found for i in range(n)]
        return found


@dataclass(frozen=True)
class _Slices:
    """(start, end, step) per axis of the storage, and the axis behind each dimension of several."""

    taken: list[tuple[int, int, int]]
    axis_of: dict[int, int]


def _sliced(lo: Lowerer, x: Value, slices: _Slices) -> list[Value]:
    """x after each slice; the last is the region in the storage's order."""
    parts = [x]
    for axis, (start, end, step) in enumerate(slices.taken):
        parts.append(lo.slice(parts[-1], axis, start, end, step))
    return parts


def _once(region: _Region) -> tuple[int, ...]:
    """The region's size with 1 where it repeats elements (stride 0)."""
    return tuple(1 if s == 0 else n for n, s in zip(region.size, region.stride, strict=True))


def _index(lo: Lowerer, region: _Region) -> Value:
    """i64: the places of the region's elements, of its size with 1 where it repeats."""
    size = _once(region)
    total = lo.full((1,) * len(size), region.offset, "i64")
    for dim, (n, s) in enumerate(zip(size, region.stride, strict=True)):
        if n > 1:
            steps = lo.emit("aten.arange", start=0, end=n * s, step=s, dtype="i64")
            shape = tuple(n if d == dim else 1 for d in range(len(size)))
            total = lo.emit("aten.add.Tensor", total, lo.view(steps, shape), alpha=1)
    return lo.view(total, (math.prod(size),))


@lowering("aten.as_strided")
def _as_strided(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    region = _Region.of(a)
    x = lo.permute(lo.value(a["self"]), region.order)
    slices = region.slices()
    if 0 in region.size:
        return lo.full(region.size, 0, lo.type(x).dtype)
    if slices is None:
        flat = lo.view(x, (math.prod(region.shape),))
        part = lo.emit("aten.index_select", flat, _index(lo, region), dim=0)
        return lo.expand(lo.view(part, _once(region)), region.size)
    part = _sliced(lo, x, slices)[-1]
    axes = [k for k in range(len(region.shape)) if k in slices.axis_of.values()]
    part = lo.view(part, [lo.shape(part)[k] for k in axes])
    part = lo.permute(part, [axes.index(slices.axis_of[d]) for d in sorted(slices.axis_of)])
    return lo.expand(lo.view(part, _once(region)), region.size)


@lowering("aten.as_strided_scatter")
def _as_strided_scatter(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    region = _Region.of(a)
    x, src = lo.permute(lo.value(a["self"]), region.order), lo.value(a["src"])
    back = [region.order.index(d) for d in range(len(region.order))]
    if 0 in region.size:
        return lo.permute(x, back)
    if any(s == 0 and n > 1 for n, s in zip(region.size, region.stride, strict=True)):
        raise _overlapping()
    slices = region.slices()
    if slices is None:
        return lo.permute(_put(lo, x, src, region), back)
    parts = _sliced(lo, x, slices)
    dims = sorted(slices.axis_of, key=lambda d: slices.axis_of[d])
    moved = lo.view(src, [region.size[d] for d in sorted(slices.axis_of)])
    moved = lo.permute(moved, [sorted(slices.axis_of).index(d) for d in dims])
    moved = lo.view(moved, lo.shape(parts[-1]))
    for axis, (start, end, step) in reversed(list(enumerate(slices.taken))):
        outer = parts[axis]
        if lo.shape(outer) != lo.shape(parts[axis + 1]):
            moved = lo.emit(
                "aten.slice_scatter", outer, moved, dim=axis, start=start, end=end, step=step
            )
    return lo.permute(moved, back)


def _put(lo: Lowerer, x: Value, src: Value, region: _Region) -> Value:
    """Each element of the result by its place in x and src, one after the other."""
    places, count = region.positions(), math.prod(region.shape)
    if len(set(places)) < len(places) or count > MOST_ELEMENTS:
        raise _overlapping()
    sources = list(range(count))
    for i, at in enumerate(places):
        sources[at] = count + i
    both = [lo.view(x, (count,)), lo.view(src, (len(places),))]
    index = write_constant(lo, sources, (count,), "i64")
    taken = lo.emit("aten.index_select", lo.emit("aten.cat", *both, dim=0), index, dim=0)
    return lo.view(taken, region.shape)


def _overlapping() -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"as_strided_scatter is defined where no element is written twice, by slices or within "
        f"{MOST_ELEMENTS} elements.",
        "Use slices, index_add or scatter.",
    )
