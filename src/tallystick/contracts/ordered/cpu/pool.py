"""Kernels of max pooling and its gradient (NUMERICS 6.15, 6.16)."""

from __future__ import annotations

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.pool import sides
from tallystick.numerics.types import Attrs

_FORWARD = "aten.max_pool2d_with_indices"


_BACKWARD = "aten.max_pool2d_with_indices_backward"


@kernel(_FORWARD)
def _forward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    size, stride, padding, dilation = sides(_FORWARD, attrs)
    y, index = outputs
    _core.max_pool2d(operand(inputs, 0), size, stride, padding, dilation, y, index)


@kernel(_BACKWARD)
def _backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, index, out = operand(inputs, 0), operand(inputs, 2), outputs[0]
    limit = out.shape[-2] * out.shape[-1]
    if index.size and not 0 <= int(index.min()) <= int(index.max()) < limit:
        raise RefusedOperandsError(_BACKWARD, f"an index is outside [0, {limit}).")
    _core.max_pool2d_backward(grad, index, out)
