"""Rules for convolutions of one, two and three axes, also transposed (NUMERICS 2.6, 2.7).

The contract's convolution has two axes. One axis gets a second one of size 1. Of three axes, the
taps along the first join the channels of a two-axis convolution, so that an element of the result
is one DOT over (channel, i, j, k), row-major, of depth, row and column. A transposed convolution
is the input gradient of a convolution; its own gradients are that convolution and its weight
gradient. A bias of a transposed convolution is added to the DOT's result, as in 2.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.positions import add_at, windows
from tallystick.program.capture.rules_window import cat, pad_with
from tallystick.program.ir import Value

Sizes = tuple[int, ...]


def _sizes(given: Any, count: int) -> Sizes:
    values = tuple(int(v) for v in given) if isinstance(given, (list, tuple)) else (int(given),)
    return values * count if len(values) == 1 else values


@dataclass(frozen=True)
class _Form:
    """A convolution's attributes, one number per axis; `shape` is the input's."""

    lo: Lowerer
    shape: Sizes
    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int

    # -- as two axes -----------------------------------------------------------------------

    def _attrs(self) -> dict[str, Any]:
        """The attributes of the two-axis convolution: neutral ones before those of one axis."""
        return {
            "stride": (1, *self.stride)[-2:],
            "padding": (0, *self.padding)[-2:],
            "dilation": (1, *self.dilation)[-2:],
            "transposed": False,
            "output_padding": (0, 0),
            "groups": self.groups,
        }

    def depths(self) -> int:
        """The number of outputs along the first of three axes."""
        size, kernel = self.shape[2], self.kernel[0]
        room = size + 2 * self.padding[0] - self.dilation[0] * (kernel - 1) - 1
        return room // self.stride[0] + 1

    def input(self, x: Value) -> Value:
        """x as the two-axis convolution takes it: [n·depths, channels·taps, h, w] of three axes."""
        lo = self.lo
        if len(self.shape) == 4:
            return x
        n, channels, *sides = lo.shape(x)
        if len(self.shape) == 3:
            return lo.view(x, (n, channels, 1, *sides))
        low, step, taps = self.padding[0], self.stride[0], self.kernel[0]
        x = pad_with(lo, x, (0, 0, 0, 0, low, low))
        depth, high, wide = lo.shape(x)[2:]
        x = lo.permute(lo.view(x, (n, channels, 1, depth, high, wide)), (0, 3, 1, 2, 4, 5))
        outputs, parts = self.depths(), []
        for tap in range(taps):
            first = tap * self.dilation[0]
            parts.append(lo.slice(x, 1, first, first + (outputs - 1) * step + 1, step))
        return lo.view(cat(lo, parts, 3), (n * outputs, channels * taps, high, wide))

    def input_gradient(self, grad: Value) -> Value:
        """The gradient of `input`: the taps' contributions added by ascending (output, tap)."""
        lo = self.lo
        if len(self.shape) < 5:
            return lo.view(grad, self.shape)
        n, channels, depth, high, wide = self.shape
        outputs, taps, low = self.depths(), self.kernel[0], self.padding[0]
        apart = lo.view(grad, (n, outputs, channels, taps, high, wide))
        places = lo.permute(apart, (0, 1, 3, 2, 4, 5))
        flat = lo.view(places, (n, outputs * taps, channels, high, wide))
        step, gap = self.stride[0], self.dilation[0]
        side_by_side = taps == step and (gap == 1 or taps == 1)
        if side_by_side and outputs * taps == depth and not low:
            added = flat
        else:
            index = windows(lo, outputs, step, taps, gap)
            added = add_at(lo, depth + 2 * low, 1, index, flat)
        return lo.permute(lo.slice(added, 1, low, low + depth), (0, 2, 1, 3, 4))

    def weight(self, w: Value) -> Value:
        """w as the two-axis convolution takes it; of three axes (channel, depth) as one."""
        shape = self.lo.shape(w)
        if len(shape) == 3:
            return self.lo.view(w, (*shape[:2], 1, shape[2]))
        if len(shape) == 5:
            return self.lo.view(w, (shape[0], shape[1] * shape[2], *shape[3:]))
        return w

    def output(self, y: Value) -> Value:
        """[n·depths, channels, h, w] as the convolution's result."""
        lo, (count, channels, high, wide) = self.lo, self.lo.shape(y)
        if len(self.shape) == 3:
            return lo.view(y, (count, channels, wide))
        if len(self.shape) == 5:
            outputs = self.depths()
            apart = lo.view(y, (count // outputs, outputs, channels, high, wide))
            return lo.permute(apart, (0, 2, 1, 3, 4))
        return y

    def output_gradient(self, grad: Value) -> Value:
        """The inverse of `output`."""
        lo, shape = self.lo, self.lo.shape(grad)
        if len(shape) == 3:
            return lo.view(grad, (*shape[:2], 1, shape[2]))
        if len(shape) == 5:
            n, channels, outputs, high, wide = shape
            apart = lo.permute(grad, (0, 2, 1, 3, 4))
            return lo.view(apart, (n * outputs, channels, high, wide))
        return grad

    # -- the three functions ---------------------------------------------------------------

    def convolved(self, x: Value, w: Value, bias: Value | None) -> Value:
        y = self.lo.emit("aten.convolution", self.input(x), self.weight(w), bias, **self._attrs())
        return self.output(y)

    def gradients(
        self, grad: Value, x: Value | None, w: Value, mask: tuple[bool, bool, bool]
    ) -> list[Value | None]:
        """(input, weight, bias) gradients as far as `mask` asks; x None where none reads it."""
        lo = self.lo
        high = self.output_gradient(grad)
        # Of the input, the input gradient reads the shape alone (2.7).
        given = lo.full(self._input_shape(), 0, "f32") if x is None else self.input(x)
        made = iter(
            lo.emit_all(
                "aten.convolution_backward",
                high,
                given,
                self.weight(w),
                **self._attrs(),
                output_mask=mask,
            )
        )
        back = [next(made) if wanted else None for wanted in mask]
        return [
            None if back[0] is None else self.input_gradient(back[0]),
            None if back[1] is None else lo.view(back[1], lo.shape(w)),
            back[2],
        ]

    def _input_shape(self) -> Sizes:
        n, channels, *sides = self.shape
        if len(sides) == 1:
            return (n, channels, 1, *sides)
        if len(sides) == 3:
            return (n * self.depths(), channels * self.kernel[0], *sides[1:])
        return self.shape


def _form(lo: Lowerer, a: Arguments, shape: Sizes, w: Value) -> _Form:
    count = len(shape) - 2
    stride, padding, dilation = (_sizes(a[k], count) for k in ("stride", "padding", "dilation"))
    return _Form(lo, shape, lo.shape(w)[2:], stride, padding, dilation, a["groups"])


def _with_bias(lo: Lowerer, y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    spread = (lo.shape(bias)[0], *(1 for _ in lo.shape(y)[2:]))
    return lo.emit("aten.add.Tensor", y, lo.view(bias, spread), alpha=1)


def _to_end(lo: Lowerer, x: Value, extra: Sizes) -> Value:
    """x with `extra` zeros at the end of each of its sides; negative ones cut elements off."""
    pad: list[int] = []
    for count in reversed(extra):
        pad += [0, count]
    return pad_with(lo, x, pad)


def _beyond(a: Arguments, count: int) -> Sizes:
    """How many more places than the operand the convolution of a transposed one's result has.

    That is none where output_padding is below the stride.
    """
    extra, stride = _sizes(a["output_padding"], count), _sizes(a["stride"], count)
    return tuple(e // s for e, s in zip(extra, stride, strict=True))


@lowering("aten.convolution")
def _convolution(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    x, w, bias = lo.value(a["input"]), lo.value(a["weight"]), lo.optional(a["bias"])
    if not a["transposed"]:
        return _form(lo, a, lo.shape(x), w).convolved(x, w, bias)
    result = lo.result(node).shape
    x = _to_end(lo, x, _beyond(a, len(result) - 2))
    y = _form(lo, a, result, w).gradients(x, None, w, (True, False, False))[0]
    assert y is not None
    return _with_bias(lo, y, bias)


@lowering("aten.convolution_backward")
def _convolution_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    grad, x, w = (lo.value(a[k]) for k in ("grad_output", "input", "weight"))
    mask = (bool(a["output_mask"][0]), bool(a["output_mask"][1]), bool(a["output_mask"][2]))
    form = _form(lo, a, lo.shape(grad if a["transposed"] else x), w)
    if not a["transposed"]:
        return form.gradients(grad, x, w, mask)
    beyond = _beyond(a, len(lo.shape(x)) - 2)
    of_input = of_weight = of_bias = None
    if mask[0]:
        of_input = _to_end(lo, form.convolved(grad, w, None), tuple(-n for n in beyond))
    if mask[1]:
        x = _to_end(lo, x, beyond)
        of_weight = form.gradients(x, grad, w, (False, True, False))[1]
    if mask[2]:
        axes = (0, *range(2, len(lo.shape(x))))
        of_bias = lo.emit("aten.sum.dim_IntList", grad, dim=axes, keepdim=False)
    return [of_input, of_weight, of_bias]
