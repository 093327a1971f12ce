"""Rules that move elements along axes: pads and shifts, windows, and diagonals (NUMERICS 9, 4.3).

Axes are padded one after the other, the last first. The gradient of a pad that repeats elements
adds the contributions to an element in row-major order of the padded axis, the first axis first.

Where windows overlap, the gradient adds the contributions to an element window by window, in
ascending order along each axis; of two axes the last is folded first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.positions import add_at, listed, progression, take, windows
from tallystick.program.capture.schema import short_name
from tallystick.program.ir import Value

_REPEATING = ("reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
              "replication_pad1d", "replication_pad2d", "replication_pad3d")  # fmt: skip


def _sides(pad: Sequence[int]) -> list[tuple[int, int, int]]:
    """(axis from the last one, before, after) for every padded axis, the last axis first."""
    pairs = zip(pad[::2], pad[1::2], strict=True)
    return [(-1 - i, int(low), int(high)) for i, (low, high) in enumerate(pairs) if low or high]


def cat(lo: Lowerer, parts: Sequence[Value], dim: int) -> Value:
    """The parts one after the other along `dim`; empty ones are left out."""
    dim %= len(lo.shape(parts[0]))
    kept = [part for part in parts if lo.shape(part)[dim]] or list(parts[:1])
    return kept[0] if len(kept) == 1 else lo.emit("aten.cat", *kept, dim=dim)


def pad_with(lo: Lowerer, x: Value, pad: Sequence[int], value: Any = 0.0) -> Value:
    """x with `pad` places of `value` around it, as torch lists them; negative ones cut off."""
    dtype = lo.type(x).dtype
    for axis, low, high in _sides(pad):
        size = lo.shape(x)[axis]
        x = lo.slice(x, axis, max(-low, 0), size - max(-high, 0))
        shape = list(lo.shape(x))
        edges = []
        for count in (low, high):
            shape[axis] = max(count, 0)
            edges.append(lo.full(shape, value, dtype) if count > 0 else None)
        x = cat(lo, [part for part in (edges[0], x, edges[1]) if part is not None], axis)
    return x


@lowering("aten.constant_pad_nd")
def _constant_pad(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return pad_with(lo, lo.value(a["self"]), a["pad"], a["value"])


def _sources(kind: str, size: int, low: int, high: int) -> list[int]:
    """The place in the axis that every place of the padded axis repeats."""
    last = size - 1
    if kind.startswith("replication"):
        return [min(max(at, 0), last) for at in range(-low, size + high)]
    return [last - abs(last - abs(at)) for at in range(-low, size + high)]


@lowering(*(f"aten.{name}" for name in _REPEATING))
def _repeating_pad(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    for axis, low, high in _sides(a["padding"]):
        dim = axis % len(lo.shape(x))
        sources = _sources(short_name(node), lo.shape(x)[dim], low, high)
        x = take(lo, x, dim, listed(lo, sources))
    return x


@lowering(*(f"aten.{name}_backward" for name in _REPEATING))
def _repeating_pad_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    grad, shape = lo.value(a["grad_output"]), lo.shape(lo.value(a["self"]))
    for axis, low, high in reversed(_sides(a["padding"])):
        dim = axis % len(shape)
        sources = _sources(short_name(node), shape[dim], low, high)
        grad = add_at(lo, shape[dim], dim, listed(lo, sources), grad)
    return grad


# -- shifts and turns -------------------------------------------------------------------------


def _flip_axes(lo: Lowerer, x: Value, dims: Sequence[int]) -> Value:
    for dim in dims:
        size = lo.shape(x)[dim] if lo.shape(x) else 1
        if size > 1:
            last_first = progression(lo, size - 1, size, -1)
            x = take(lo, x, dim % len(lo.shape(x)), last_first)
    return x


@lowering("aten.flip")
def _flip(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Each axis read from its last index to its first: half of the gradient of cumsum."""
    return _flip_axes(lo, lo.value(a["self"]), a["dims"])


@lowering("aten.rot90")
def _rot90(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, (first, second) = lo.value(a["self"]), a["dims"]
    turns = a["k"] % 4
    if turns == 2:
        return _flip_axes(lo, x, (first, second))
    if turns == 1:
        return lo.swap(_flip_axes(lo, x, (second,)), first, second)
    return lo.swap(_flip_axes(lo, x, (first,)), first, second) if turns else x


@lowering("aten.roll")
def _roll(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    shape = lo.shape(x)
    dims, rolled = a["dims"], x
    if not dims:
        rolled, dims = lo.view(x, (lo.type(x).numel,)), (0,)
    for shift, dim in zip(a["shifts"], dims, strict=True):
        size = lo.shape(rolled)[dim]
        if size and shift % size:
            cut = size - shift % size
            parts = [lo.slice(rolled, dim, cut, size), lo.slice(rolled, dim, 0, cut)]
            rolled = cat(lo, parts, dim)
    return lo.view(rolled, shape)


def _apart(lo: Lowerer, x: Value, dim: int, sizes: Sequence[int]) -> Value:
    """Axis `dim` as the axes `sizes`."""
    shape = lo.shape(x)
    return lo.view(x, (*shape[:dim], *sizes, *shape[dim + 1 :]))


def _together(lo: Lowerer, x: Value, dim: int) -> Value:
    """Axes `dim` and `dim + 1` as one."""
    shape = lo.shape(x)
    return lo.view(x, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))


def unfold(lo: Lowerer, x: Value, dim: int, count: int, step: int, size: int, gap: int) -> Value:
    """Axis `dim` as (window, tap): place w·step + t·gap."""
    if (gap, step) == (1, size) and count * size <= lo.shape(x)[dim]:
        return _apart(lo, lo.slice(x, dim, 0, count * size), dim, (count, size))
    taken = take(lo, x, dim, windows(lo, count, step, size, gap))
    return _apart(lo, taken, dim, (count, size))


def fold(lo: Lowerer, x: Value, dim: int, total: int, step: int, gap: int) -> Value:
    """The gradient of `unfold`: axes (window, tap) added into one axis of `total` places."""
    count, size = lo.shape(x)[dim : dim + 2]
    flat = _together(lo, x, dim)
    if (gap, step) == (1, size):
        pad = [0] * (2 * (len(lo.shape(flat)) - dim) - 1) + [total - count * size]
        return pad_with(lo, flat, pad)
    return add_at(lo, total, dim, windows(lo, count, step, size, gap), flat)


def _to_end(rank: int, dim: int) -> list[int]:
    return [i for i in range(rank) if i != dim] + [dim]


@lowering("aten.unfold", "aten.unfold_copy")
def _unfold(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    if not lo.shape(x):
        return lo.view(x, lo.result(node).shape)
    dim = a["dimension"] % len(lo.shape(x))
    count = lo.result(node).shape[dim]
    apart = unfold(lo, x, dim, count, a["step"], a["size"], 1)
    return lo.permute(apart, _to_end(len(lo.shape(apart)), dim + 1))


@lowering("aten.unfold_backward")
def _unfold_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    grad, sizes = lo.value(a["grad_in"]), a["input_sizes"]
    if not sizes:
        return lo.view(grad, ())
    dim = a["dim"] % len(sizes)
    rank = len(lo.shape(grad))
    order = [*range(dim + 1), rank - 1, *range(dim + 1, rank - 1)]
    return fold(lo, lo.permute(grad, order), dim, sizes[dim], a["step"], 1)


def _blocks(size: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _spatial(a: Arguments, size: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """(windows, stride, kernel, dilation) of the two axes."""
    names = ("kernel_size", "dilation", "padding", "stride")
    return [
        (_blocks(n, k, d, p, s), s, k, d)
        for n, k, d, p, s in zip(size, *(a[name] for name in names), strict=True)
    ]


def _edges(padding: Sequence[int], sign: int) -> list[int]:
    high, wide = padding
    return [sign * wide, sign * wide, sign * high, sign * high]


@lowering("aten.im2col")
def _im2col(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    *lead, channels, high, wide = lo.shape(x)
    batch = math.prod(lead)
    rows, columns = _spatial(a, (high, wide))
    x = pad_with(lo, lo.view(x, (batch, channels, high, wide)), _edges(a["padding"], 1))
    x = unfold(lo, unfold(lo, x, 3, *columns), 2, *rows)  # n, c, oh, kh, ow, kw
    return lo.view(lo.permute(x, (0, 1, 3, 5, 2, 4)), lo.result(node).shape)


@lowering("aten.col2im")
def _col2im(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, (high, wide) = lo.value(a["self"]), a["output_size"]
    rows, columns = _spatial(a, (high, wide))
    batch = math.prod(lo.shape(x)[:-2])
    channels = lo.shape(x)[-2] // (rows[2] * columns[2])
    x = lo.view(x, (batch, channels, rows[2], columns[2], rows[0], columns[0]))
    x = lo.permute(x, (0, 1, 4, 2, 5, 3))
    x = fold(lo, x, 4, wide + 2 * a["padding"][1], columns[1], columns[3])
    x = fold(lo, x, 2, high + 2 * a["padding"][0], rows[1], rows[3])
    return lo.view(pad_with(lo, x, _edges(a["padding"], -1)), lo.result(node).shape)


# -- diagonals --------------------------------------------------------------------------------


class _Diagonal:
    """The diagonal of axes (i, j) of a tensor: a slice of its last two axes taken as one."""

    def __init__(self, shape: Sequence[int], offset: int, dim1: int, dim2: int) -> None:
        rank = len(shape)
        i, j = dim1 % rank, dim2 % rank
        self.order = [d for d in range(rank) if d not in (i, j)] + [i, j]
        self.back = [self.order.index(d) for d in range(rank)]
        self.shape = tuple(shape[d] for d in self.order)
        rows, columns = self.shape[-2:]
        self.start = offset if offset >= 0 else -offset * columns
        below = columns - offset if offset >= 0 else columns
        self.count = max(min(rows + min(offset, 0), below), 0)
        self.step = columns + 1

    def _range(self, total: int) -> dict[str, int]:
        start = min(self.start, total)
        end = start + (self.count - 1) * self.step + 1 if self.count else start
        return {"start": start, "end": end, "step": self.step}

    def _flat(self, lo: Lowerer, x: Value) -> Value:
        *lead, rows, columns = self.shape
        return lo.view(lo.permute(x, self.order), (*lead, rows * columns))

    def read(self, lo: Lowerer, x: Value) -> Value:
        flat = self._flat(lo, x)
        return lo.slice(flat, -1, **self._range(lo.shape(flat)[-1]))

    def written(self, lo: Lowerer, x: Value, source: Value) -> Value:
        """x with `source` on the diagonal."""
        flat = self._flat(lo, x)
        dim = len(lo.shape(flat)) - 1
        places = self._range(lo.shape(flat)[-1])
        made = lo.emit("aten.slice_scatter", flat, source, dim=dim, **places)
        return lo.permute(lo.view(made, self.shape), self.back)


@lowering("aten.diagonal", "aten.diagonal_copy")
def _diagonal(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    return _Diagonal(lo.shape(x), a["offset"], a["dim1"], a["dim2"]).read(lo, x)


@lowering("aten.diagonal_scatter")
def _diagonal_scatter(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    places = _Diagonal(lo.shape(x), a["offset"], a["dim1"], a["dim2"])
    return places.written(lo, x, lo.value(a["src"]))


@lowering("aten.diagonal_backward", "aten.diag_embed")
def _onto_diagonal(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    source = lo.value(a["grad_output"] if "grad_output" in a else a["self"])
    result = lo.result(node)
    zeros = lo.full(result.shape, 0, result.dtype)
    return _Diagonal(result.shape, a["offset"], a["dim1"], a["dim2"]).written(lo, zeros, source)


@lowering("aten.trace")
def _trace(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x = lo.value(a["self"])
    return lo.emit("aten.sum", _Diagonal(lo.shape(x), 0, 0, 1).read(lo, x))


@lowering("aten.eye", "aten.eye.m")
def _eye(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    result = lo.result(node)
    ones = lo.full(result.shape, 1, result.dtype)
    return lo.emit("aten.tril", lo.emit("aten.triu", ones, diagonal=0), diagonal=0)


@lowering("aten.pixel_shuffle", "aten.pixel_unshuffle")
def _pixel_shuffle(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Blocks of r·r channels become blocks of r by r elements, or the other way round."""
    x = lo.value(a["self"])
    result = lo.result(node).shape
    *lead, channels, high, wide = lo.shape(x)
    at = len(lead)
    if "upscale_factor" in a:
        r = a["upscale_factor"]
        apart, order = (channels // r**2, r, r, high, wide), (0, 3, 1, 4, 2)
    else:
        r = a["downscale_factor"]
        apart, order = (channels, high // r, r, wide // r, r), (0, 2, 4, 1, 3)
    x = lo.view(x, (*lead, *apart))
    return lo.view(lo.permute(x, (*range(at), *(at + i for i in order))), result)
