"""Kernels of the dot class: matrix products and 2-D convolutions (NUMERICS 2)."""

from __future__ import annotations

from typing import cast

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs, operand, optional
from tallystick.numerics.operators.dot import geometry, output_mask
from tallystick.numerics.types import Attrs


# --- matrix products ------------------------------------------------------------------------------
@kernel("aten.mm", strided=True)
def _mm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.mm(operand(inputs, 0), operand(inputs, 1), outputs[0])


@kernel("aten.addmm", strided=True)
def _addmm(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.addmm(
        operand(inputs, 0),
        operand(inputs, 1),
        operand(inputs, 2),
        outputs[0],
        cast(float, attrs["beta"]),
        cast(float, attrs["alpha"]),
    )


@kernel("aten.bmm", strided=True)
def _bmm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.bmm(operand(inputs, 0), operand(inputs, 1), outputs[0])


# --- convolution ----------------------------------------------------------------------------------
@kernel("aten.convolution")
def _convolution(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.convolution(
        operand(inputs, 0),
        operand(inputs, 1),
        optional(inputs, 2),
        outputs[0],
        *geometry("aten.convolution", attrs),
    )


@kernel("aten.convolution_backward")
def _convolution_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, x, w = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    form = geometry("aten.convolution_backward", attrs)
    want_input, want_weight, want_bias = output_mask(attrs)
    remaining = iter(outputs)
    if want_input:
        _core.convolution_input_grad(grad, w, next(remaining), *form)
    if want_weight:
        _core.convolution_weight_grad(grad, x, next(remaining), *form)
    if want_bias:
        _core.convolution_bias_grad(grad, next(remaining))
