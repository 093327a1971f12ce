"""Rules for pads and shifts, which copy elements to other places (NUMERICS 9, 4.3).

Axes are padded one after the other, the last first. The gradient of a pad that repeats elements
adds the contributions to an element in row-major order of the padded axis, the first axis first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.positions import add_at, listed, progression, take
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
