"""Kernels of the dot class: matrix products and 2-D convolutions (NUMERICS 2); and of the quantised
weights that products read in their place (NUMERICS 19)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.kernel import Arrays, Outputs, operand
from tallystick.numerics.blocks import block_format
from tallystick.numerics.operators.common import number, text
from tallystick.numerics.types import Attrs
from tallystick.products.operators import CONVOLUTION_OPERATORS, Convolution, convolutions


def rows_of(b: np.ndarray) -> np.ndarray:
    """The bytes of a weight in blocks, a row for each column of the matrix `b`."""
    rows: np.ndarray = b.T.view(np.uint8)
    return rows


# A small model's step makes hundreds of these calls, so each goes straight to the core.
@kernel("aten.mm", strided=True, widens=(1,))
def _mm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    a, b = operand(inputs, 0), operand(inputs, 1)
    if b.dtype == np.float32:
        _core.mm(a, b, outputs[0])
    elif format_ := block_format(b.dtype):
        _core.mm_quantised(format_, a, rows_of(b), outputs[0])
    else:  # a weight as it is stored
        _core.mm_stored(a, b.view(np.uint16), outputs[0], b.dtype == np.float16)


@kernel("aten.bmm", strided=True)
def _bmm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.bmm(operand(inputs, 0), operand(inputs, 1), outputs[0])


@kernel("aten.addmm", strided=True, widens=(2,))
def _addmm(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    c, a, b = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    beta, alpha = number(attrs, "beta"), number(attrs, "alpha")
    if b.dtype == np.float32:
        _core.addmm(c, a, b, outputs[0], beta, alpha)
    elif format_ := block_format(b.dtype):
        _core.addmm_quantised(format_, c, a, rows_of(b), outputs[0], beta, alpha)
    else:
        is_f16 = b.dtype == np.float16
        _core.addmm_stored(c, a, b.view(np.uint16), outputs[0], beta, alpha, is_f16)


@kernel(*CONVOLUTION_OPERATORS, named=True)
def _convolutions(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    for conv in convolutions(op, attrs, inputs, outputs):
        convolve(conv)


def convolve(conv: Convolution[np.ndarray]) -> None:
    """Compute `conv.out`, and for y with the bias."""
    if conv.makes == "y":
        _core.convolution(conv.x, conv.weight, conv.bias, conv.out, *conv.form)
    elif conv.makes == "x":
        _core.convolution_input_grad(conv.y, conv.weight, conv.out, *conv.form)
    elif conv.makes == "weight":
        _core.convolution_weight_grad(conv.y, conv.x, conv.out, *conv.form)
    else:
        _core.convolution_bias_grad(conv.y, conv.out)


@kernel("tallystick.dequantize")
def _dequantize(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.dequantize(text(attrs, "format"), operand(inputs, 0), outputs[0])
