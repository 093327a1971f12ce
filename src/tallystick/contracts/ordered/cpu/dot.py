"""Kernels of the dot class: matrix products and 2-D convolutions (NUMERICS 2)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.numerics.types import Attrs
from tallystick.products.operators import (
    CONVOLUTION_OPERATORS,
    MATRIX_OPERATORS,
    Convolution,
    convolutions,
    matrices,
)


@kernel(*MATRIX_OPERATORS, named=True, strided=True)
def _products(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    product = matrices(op, attrs, inputs, outputs)
    a, b, c, out = product.a, product.b, product.c, product.out
    if c is not None:
        _core.addmm(c, a, b, out, product.beta, product.alpha)
    elif a.ndim == 3:
        _core.bmm(a, b, out)
    else:
        _core.mm(a, b, out)


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
