"""Convolutions of `exact/1` and their gradients on a GPU (NUMERICS 17.2, 17.3; 2.6, 2.7).

The integers of patches are laid out straight from the image, some places at a time: an element has
one integer for all taps that read it, since its group is that of its image or channel.
"""

from __future__ import annotations

import math

from tallystick.contracts.exact.cuda.layout import Blocks, Operand
from tallystick.contracts.exact.cuda.products import Target, dots
from tallystick.contracts.exact.cuda.table import exact_kernel
from tallystick.contracts.ordered.cuda.reduction import fold
from tallystick.devices.cuda.operands import Outputs, Tensors, operand, optional, wanted
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.operators.dot import output_mask
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import Last, Lines
from tallystick.products.cuda.windows import Window, backward, forward


def _area(x: DeviceTensor) -> int:
    return math.prod(x.shape[2:])


def _images(
    width: int, window: Window, weight: Lines, rows: int, out: DeviceTensor, last: Last = Last(),  # noqa: B008
) -> None:  # fmt: skip
    """out[n,g·M + i,·] = the DOT of weight line i of group g and the patches; `rows` is M."""
    x, channels = window.x, window.channels
    blocks = Blocks(width, window.taps, window.rows.taps * window.columns.taps)
    a = Operand("lines", weight.slots(), weight, rows, blocks.terms, blocks.segment)
    area = _area(x)
    image = Lines(x.address, x.shape[1] * area, 1, channels * area, window.groups)
    b = Operand(
        "places", window.slots(), image, x.shape[0], channels * area,
        max(1, blocks.outer * area), max(window.plane, 1), lines_first=True,
    )  # fmt: skip
    target = Target(out.address, window.groups, rows, window.places, window.plane, last)
    dots(out.device, blocks, a, b, target)


@exact_kernel("aten.convolution")
def _convolution(width: int, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, w, bias, out = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2), outputs[0]
    window = forward(attrs, "aten.convolution", x, w, out)
    rows, terms = w.shape[0] // window.groups, window.taps
    weight = Lines(w.address, terms, 1, rows * terms, window.groups)
    last = Last() if bias is None else Last(bias.address, rows, 1, 0, beta=1.0)
    _images(width, window, weight, rows, out, last)


def _input_gradient(width: int, window: Window, w: DeviceTensor, out: DeviceTensor) -> None:
    outs, here, taps = w.shape[0] // window.groups, w.shape[1], _area(w)
    weight = Lines(w.address, taps, 1, outs * here * taps, window.groups, max(taps, 1), here * taps)
    _images(width, window, weight, here, out)


def _weight_gradient(width: int, window: Window, grad: DeviceTensor, out: DeviceTensor) -> None:
    """out[g·M + i, tap] = the DOT of gradient channel i of group g and the patches of a tap."""
    x, groups, plane = window.x, window.groups, window.plane
    images, rows, area = x.shape[0], grad.shape[1] // groups, _area(x)
    blocks = Blocks(width, window.places, plane)
    left = Lines(grad.address, plane, 1, rows * plane, groups, max(plane, 1), groups * rows * plane)
    a = Operand("lines", left.slots(), left, rows, blocks.terms, blocks.segment)
    right = Lines(
        x.address, area, 1, window.channels * area, groups, max(area, 1), x.shape[1] * area
    )
    taps = window.rows.taps * window.columns.taps
    b = Operand(
        "taps", window.slots(), right, window.channels, images * area,
        max(1, blocks.outer * area), max(taps, 1),
    )  # fmt: skip
    dots(out.device, blocks, a, b, Target(out.address, groups, rows, window.taps, window.taps))


@exact_kernel("aten.convolution_backward")
def _convolution_backward(width: int, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    grad, x, w = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    op = "aten.convolution_backward"
    dx, dw, db = wanted(outputs, output_mask(attrs))
    if dx is not None:
        _input_gradient(width, backward(attrs, op, x, w, grad), w, dx)
    if dw is not None:
        _weight_gradient(width, forward(attrs, op, x, w, grad), grad, dw)
    if db is not None and db.size:
        fold("reduce_sum", grad, (0, 2, 3), db)
