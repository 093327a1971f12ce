"""The operators of `exact/1` on a GPU: mm, bmm and addmm (NUMERICS 17.3; 2.4, 2.5), convolutions
and their gradients (17.2, 17.3; 2.6, 2.7).

The integers of patches are laid out straight from the image, some places at a time: an element has
one integer for all taps that read it, since its group is that of its image or channel.
"""

from __future__ import annotations

import math

from tallystick.contracts.exact.cuda import exact_kernel
from tallystick.contracts.exact.cuda.layout import ProductSide, SegmentBlocks
from tallystick.contracts.exact.cuda.products import ExactTarget, dots
from tallystick.contracts.ordered.cuda.reduction import fold
from tallystick.devices.cuda.launch import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import Lines, last_of, lines_of
from tallystick.products.cuda.windows import slots
from tallystick.products.operators import (
    CONVOLUTION_OPERATORS,
    MATRIX_OPERATORS,
    Convolution,
    convolutions,
    matrices,
)


# --- matrix products ------------------------------------------------------------------------------
def _operand(x: DeviceTensor, line_axis: int, blocks: SegmentBlocks) -> ProductSide:
    """A matrix, or a batch of them, by lines along the axis `line_axis` from the end."""
    lines = lines_of(x, line_axis)
    return ProductSide(
        "lines", lines.slots(), lines, x.shape[line_axis], blocks.terms, blocks.length,
        lines_first=lines.line == 1 and lines.term != 1,
    )  # fmt: skip


@exact_kernel(*MATRIX_OPERATORS, named=True)
def _products(op: str, width: int, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    product = matrices(op, attrs, inputs, outputs)
    batches, m, n, k = product.sizes
    blocks = SegmentBlocks(width, k)
    target = ExactTarget(product.out.address, batches, m, n, n, last_of(product))
    a, b = _operand(product.a, -2, blocks), _operand(product.b, -1, blocks)
    dots(product.out.device, blocks, a, b, target)


# --- convolutions ---------------------------------------------------------------------------------
@exact_kernel(*CONVOLUTION_OPERATORS, named=True)
def _convolutions(op: str, width: int, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    for conv in convolutions(op, attrs, inputs, outputs):
        if conv.makes == "weight":
            _weight_gradient(width, conv)
        elif conv.makes != "bias":
            _images(width, conv)
        elif conv.out.size:
            fold("reduce_sum", conv.y, (0, 2, 3), conv.out)


def _images(width: int, conv: Convolution[DeviceTensor]) -> None:
    """out[n,g·M + i,·] = the DOT of weight line i of group g and the patches."""
    window, rows, w = conv.window, conv.rows, conv.weight
    x, channels, groups, terms = window.x, window.channels, window.groups, window.taps
    blocks = SegmentBlocks(width, terms, window.kernel)
    weight = Lines(w.address, terms, 1, rows * terms, groups)
    if conv.makes == "x":  # the channels of y come first in the weight
        taps = window.kernel
        weight = Lines(w.address, taps, 1, rows * terms, groups, max(taps, 1), rows * taps)
    a = ProductSide("lines", weight.slots(), weight, rows, blocks.terms, blocks.segment)
    area = math.prod(x.shape[2:])
    image = Lines(x.address, x.shape[1] * area, 1, channels * area, groups)
    b = ProductSide(
        "places", slots(window), image, x.shape[0], channels * area,
        max(1, blocks.outer * area), max(window.plane, 1), lines_first=True,
    )  # fmt: skip
    target = ExactTarget(conv.out.address, groups, rows, window.places, window.plane, last_of(conv))
    dots(conv.out.device, blocks, a, b, target)


def _weight_gradient(width: int, conv: Convolution[DeviceTensor]) -> None:
    """out[g·M + i, tap] = the DOT of gradient channel i of group g and the patches of a tap."""
    window, rows, x, grad = conv.window, conv.rows, conv.x, conv.y
    groups, plane, channels = window.groups, window.plane, window.channels
    images, area = x.shape[0], math.prod(x.shape[2:])
    blocks = SegmentBlocks(width, window.places, plane)
    left = Lines(grad.address, plane, 1, rows * plane, groups, max(plane, 1), groups * rows * plane)
    a = ProductSide("lines", left.slots(), left, rows, blocks.terms, blocks.segment)
    right = Lines(x.address, area, 1, channels * area, groups, max(area, 1), x.shape[1] * area)
    b = ProductSide(
        "taps", slots(window), right, channels, images * area,
        max(1, blocks.outer * area), max(window.kernel, 1),
    )  # fmt: skip
    target = ExactTarget(conv.out.address, groups, rows, window.taps, window.taps)
    dots(conv.out.device, blocks, a, b, target)
