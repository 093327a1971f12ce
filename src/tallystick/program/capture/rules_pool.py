"""Rules for average pooling and max pooling (NUMERICS 6.15, 6.16, 9, 10.2).

An average is the sum of the window over its divisor. The axes are summed one after the other, the
first one first; along an axis of at most 8 taps the sum is the chain of `add` over ascending taps,
of more the SUM of 3.1. In the gradient, the contributions to an element are added window by
window, in ascending order. Max pooling takes the lowest position among equal maxima.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.positions import add_at, flat, listed, progression, take
from tallystick.program.capture.rules_window import cat, fold, pad_with, unfold
from tallystick.program.capture.schema import short_name
from tallystick.program.ir import Value

# More taps than this are one sum node, fewer are added one by one, which moves fewer bytes.
_CHAIN = 8


def sizes_of(given: Any, count: int) -> tuple[int, ...]:
    values = tuple(int(v) for v in given) if isinstance(given, (list, tuple)) else (int(given),)
    return values * count if len(values) == 1 else values


@dataclass(frozen=True)
class _Axis:
    """The windows along an axis of `size` places; those outside of it hold zeros."""

    size: int
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def step(self) -> int:
        return self.starts[1] - self.starts[0] if len(self.starts) > 1 else self.lengths[0]

    @property
    def even(self) -> bool:
        """Whether all windows have one length and one distance."""
        first = self.starts[0]
        return len(set(self.lengths)) == 1 and all(
            start == first + i * self.step for i, start in enumerate(self.starts)
        )

    def _edges(self) -> tuple[int, int]:
        return max(-self.starts[0], 0), max(self.starts[-1] + self.lengths[-1] - self.size, 0)

    def summed(self, lo: Lowerer, x: Value, dim: int) -> Value:
        """Σ over every window, along axis `dim`."""
        count, length = len(self.starts), self.lengths[0]
        if not self.even:
            sums = [
                lo.emit(
                    "aten.sum.dim_IntList", lo.slice(x, dim, s, s + n), dim=(dim,), keepdim=True
                )
                for s, n in zip(self.starts, self.lengths, strict=True)
            ]
            return cat(lo, sums, dim)
        behind = len(lo.shape(x)) - dim - 1
        x = pad_with(lo, x, (*(0 for _ in range(2 * behind)), *self._edges()))
        if length > _CHAIN:
            taps = unfold(lo, x, dim, count, self.step, length, 1)
            return lo.emit("aten.sum.dim_IntList", taps, dim=(dim + 1,), keepdim=False)
        last = (count - 1) * self.step + 1
        total = lo.slice(x, dim, 0, last, self.step)
        for tap in range(1, length):
            part = lo.slice(x, dim, tap, tap + last, self.step)
            total = lo.emit("aten.add.Tensor", total, part, alpha=1)
        return total

    def spread(self, lo: Lowerer, grad: Value, dim: int) -> Value:
        """The gradient of `summed`."""
        shape = lo.shape(grad)
        if not self.even:
            windows = list(zip(self.starts, self.lengths, strict=True))
            owners = [w for w, (_, length) in enumerate(windows) for _ in range(length)]
            places = [at for start, length in windows for at in range(start, start + length)]
            copies = take(lo, grad, dim, listed(lo, owners))
            return add_at(lo, self.size, dim, listed(lo, places), copies)
        low, high = self._edges()
        apart = lo.view(grad, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
        taps = lo.expand(apart, (*shape[: dim + 1], self.lengths[0], *shape[dim + 1 :]))
        whole = fold(lo, taps, dim, low + self.size + high, self.step, 1)
        return lo.slice(whole, dim, low, low + self.size)


def _divided(lo: Lowerer, x: Value, counts: Sequence[Sequence[int]]) -> Value:
    """x over the product of every trailing axis's counts."""
    even = [len(set(axis)) == 1 for axis in counts]
    divisor = math.prod(axis[0] for axis, one in zip(counts, even, strict=True) if one)
    if all(even):
        return x if divisor == 1 else lo.emit("aten.div.Scalar", x, other=float(divisor))
    product: Value | None = None
    for i, (axis, one) in enumerate(zip(counts, even, strict=True)):
        if not one:
            column = lo.view(listed(lo, axis), (len(axis), *(1 for _ in counts[i + 1 :])))
            if product is not None:
                column = lo.emit("aten.mul.Tensor", product, column)
            product = column
    assert product is not None
    if divisor != 1:
        product = lo.emit("aten.mul.Scalar", product, other=divisor)
    return lo.emit("aten.div.Tensor", x, lo.cast(product, "f32"))


# -- average pooling --------------------------------------------------------------------------


def _axes(a: Arguments, sides: Sequence[int], outputs: Sequence[int]) -> list[_Axis]:
    kernel = sizes_of(a["kernel_size"], len(sides))
    stride = sizes_of(a["stride"], len(sides)) or kernel  # ATen: none given
    padding = sizes_of(a["padding"], len(sides))
    return [
        _Axis(n, tuple(j * s - p for j in range(o)), (k,) * o)
        for n, o, k, s, p in zip(sides, outputs, kernel, stride, padding, strict=True)
    ]


def _counts(a: Arguments, axes: Sequence[_Axis]) -> list[list[int]]:
    """How many elements count in every window; padding counts as far as `padding` reaches."""
    if a["divisor_override"]:
        return [[int(a["divisor_override"])], *([1] for _ in axes[1:])]
    padding = sizes_of(a["padding"], len(axes))
    counts = []
    for axis, pad in zip(axes, padding, strict=True):
        edge = pad if a["count_include_pad"] else 0
        counts.append(
            [
                min(s + n, axis.size + edge) - max(s, -edge)
                for s, n in zip(axis.starts, axis.lengths, strict=True)
            ]
        )
    return counts


def _average(lo: Lowerer, x: Value, axes: Sequence[_Axis], counts: list[list[int]]) -> Value:
    first = len(lo.shape(x)) - len(axes)
    for i, axis in enumerate(axes):
        x = axis.summed(lo, x, first + i)
    return _divided(lo, x, counts)


def _average_backward(
    lo: Lowerer, grad: Value, axes: Sequence[_Axis], counts: list[list[int]]
) -> Value:
    first = len(lo.shape(grad)) - len(axes)
    grad = _divided(lo, grad, counts)
    for i, axis in reversed(list(enumerate(axes))):
        grad = axis.spread(lo, grad, first + i)
    return grad


@lowering("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def _avg_pool(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    count = int(short_name(node)[-2])
    x = lo.value(a["self"])
    a = {"divisor_override": None, **a}
    axes = _axes(a, lo.shape(x)[-count:], lo.result(node).shape[-count:])
    return _average(lo, x, axes, _counts(a, axes))


@lowering("aten.avg_pool2d_backward", "aten.avg_pool3d_backward")
def _avg_pool_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    count = int(short_name(node)[len("avg_pool")])
    x, grad = lo.value(a["self"]), lo.value(a["grad_output"])
    axes = _axes(a, lo.shape(x)[-count:], lo.shape(grad)[-count:])
    return _average_backward(lo, grad, axes, _counts(a, axes))


def _adaptive(sides: Sequence[int], outputs: Sequence[int]) -> list[_Axis]:
    """Window j reaches from ⌊j·n/o⌋ to ⌈(j + 1)·n/o⌉."""
    axes = []
    for n, o in zip(sides, outputs, strict=True):
        starts = [j * n // o for j in range(o)]
        lengths = [-(-(j + 1) * n // o) - start for j, start in enumerate(starts)]
        axes.append(_Axis(n, tuple(starts), tuple(lengths)))
    return axes


@lowering("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d")
def _adaptive_average(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, count, result = lo.value(a["self"]), len(a["output_size"]), lo.result(node)
    if 0 in result.shape:
        return lo.full(result.shape, 0, result.dtype)
    axes = _adaptive(lo.shape(x)[-count:], result.shape[-count:])
    return _average(lo, x, axes, [list(axis.lengths) for axis in axes])


@lowering("aten._adaptive_avg_pool2d_backward", "aten._adaptive_avg_pool3d_backward")
def _adaptive_average_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    count = 3 if "3d" in short_name(node) else 2
    x, grad = lo.value(a["self"]), lo.value(a["grad_output"])
    if 0 in lo.shape(grad):
        return lo.full(lo.shape(x), 0, lo.type(x).dtype)
    axes = _adaptive(lo.shape(x)[-count:], lo.shape(grad)[-count:])
    return _average_backward(lo, grad, axes, [list(axis.lengths) for axis in axes])


# -- max pooling ------------------------------------------------------------------------------


def _two_axes(lo: Lowerer, x: Value, **attrs: Any) -> list[Value]:
    return lo.emit_all("aten.max_pool2d_with_indices", x, **attrs)


def _three_axes(lo: Lowerer, x: Value, a: Arguments) -> list[Value]:
    """The rows and columns of every depth, then the depths of what is left."""
    *lead, depth, high, wide = lo.shape(x)
    planes = math.prod(lead)
    kernel = sizes_of(a["kernel_size"], 3)
    given = {k: sizes_of(a[k], 3) for k in ("stride", "padding", "dilation")}
    given = {"kernel_size": kernel, **given, "stride": given["stride"] or kernel}
    inner = {k: v[1:] for k, v in given.items()}
    outer = {k: (v[0], 0 if k == "padding" else 1) for k, v in given.items()}
    ceil = bool(a["ceil_mode"])
    x = lo.view(x, (planes, depth, high, wide))
    top, index = _two_axes(lo, x, **inner, ceil_mode=ceil)
    rows, columns = lo.shape(top)[-2:]
    flat_top = lo.view(top, (planes, 1, depth, rows * columns))
    best, at = _two_axes(lo, flat_top, **outer, ceil_mode=ceil)
    of_depth = lo.view(progression(lo, 0, depth, high * wide), (depth, 1, 1))
    index = lo.emit("aten.add.Tensor", index, of_depth, alpha=1)
    outputs = lo.shape(best)[2] * rows * columns
    places = lo.view(index, (planes, depth * rows * columns))
    found = lo.emit("aten.gather", places, lo.view(at, (planes, outputs)), dim=1)
    shape = (*lead, lo.shape(best)[2], rows, columns)
    return [lo.view(best, shape), lo.view(found, shape)]


@lowering("aten.max_pool3d_with_indices")
def _max_pool3d(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return _three_axes(lo, lo.value(a["self"]), a)


@lowering(
    "aten.max_pool3d_with_indices_backward",
    "aten.adaptive_max_pool2d_backward",
    "aten.adaptive_max_pool3d_backward",
)
def _max_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """The gradient goes by the indices alone: 6.16 with any windows that have these shapes.

    Where there are more outputs than elements along an axis: `index_add` on all planes as one.
    """
    count = 2 if "pool2d" in short_name(node) else 3
    x, grad, index = (lo.value(a[k]) for k in ("self", "grad_output", "indices"))
    shape, outputs = lo.shape(x), lo.shape(grad)
    planes, wide = math.prod(shape[:-count]), shape[-1]
    high, rows = math.prod(shape[-count:-1]), math.prod(outputs[-count:-1])
    if rows <= high and outputs[-1] <= wide:
        one = (planes, rows, outputs[-1])
        kernel = (high - rows + 1, wide - outputs[-1] + 1)
        added = lo.emit(
            "aten.max_pool2d_with_indices_backward",
            lo.view(grad, one),
            lo.view(x, (planes, high, wide)),
            lo.view(index, one),
            kernel_size=kernel,
            stride=(1, 1),
            padding=(0, 0),
            dilation=(1, 1),
            ceil_mode=False,
        )
        return lo.view(added, shape)
    taken = lo.type(grad).numel
    place = flat(lo, [planes, lo.view(index, (planes, taken // planes))], [planes, high * wide])
    listed_place, source = lo.view(place, (taken,)), lo.view(grad, (taken,))
    return lo.view(add_at(lo, lo.type(x).numel, 0, listed_place, source), shape)


def _by_windows(lo: Lowerer, x: Value, axes: Sequence[_Axis]) -> list[Value]:
    """Uneven windows: axis by axis from the last, the largest element of every window."""
    shape = lo.shape(x)
    first = len(shape) - len(axes)
    places = lo.view(progression(lo, 0, math.prod(shape[first:]), 1), shape[first:])
    index = lo.expand(places, shape)
    for i, axis in reversed(list(enumerate(axes))):
        dim, tops, found = first + i, [], []
        for start, length in zip(axis.starts, axis.lengths, strict=True):
            window = lo.slice(x, dim, start, start + length)
            at = lo.emit("aten.argmax", window, dim=dim, keepdim=True)
            here = lo.slice(index, dim, start, start + length)
            tops.append(lo.emit("aten.gather", window, at, dim=dim))
            found.append(lo.emit("aten.gather", here, at, dim=dim))
        x, index = cat(lo, tops, dim), cat(lo, found, dim)
    return [x, index]


@lowering("aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def _adaptive_max(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, count = lo.value(a["self"]), len(a["output_size"])
    axes = _adaptive(lo.shape(x)[-count:], a["output_size"])
    if not all(axis.even for axis in axes):
        return _by_windows(lo, x, axes)
    even: dict[str, Any] = {
        "kernel_size": tuple(axis.lengths[0] for axis in axes),
        "stride": tuple(axis.step for axis in axes),
        "padding": (0,) * count,
        "dilation": (1,) * count,
        "ceil_mode": False,
    }
    return _two_axes(lo, x, **even) if count == 2 else _three_axes(lo, x, even)


def _pair(given: Any) -> tuple[int, ...]:
    values = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    return values * 2 if len(values) == 1 else values


@lowering("aten.max_pool2d_with_indices", "aten.max_pool2d_with_indices_backward")
def _max_pool(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    attrs = {k: _pair(a[k]) for k in ("kernel_size", "stride", "padding", "dilation")}
    attrs["stride"] = attrs["stride"] or attrs["kernel_size"]  # ATen: none given
    if "indices" not in a:
        x = lo.value(a["self"])
        return lo.emit_all(
            "aten.max_pool2d_with_indices", x, **attrs, ceil_mode=bool(a["ceil_mode"])
        )
    operands = [lo.value(a[k]) for k in ("grad_output", "self", "indices")]
    return lo.emit(
        "aten.max_pool2d_with_indices_backward",
        *operands,
        **attrs,
        ceil_mode=bool(a["ceil_mode"]),
    )
