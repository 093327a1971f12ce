"""Calls of native/cuda/pool.cu: max pooling and its gradient (NUMERICS 6.15, 6.16)."""

from __future__ import annotations

import math

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import launch_over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.pool import sides
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import Room

_FORWARD = "aten.max_pool2d_with_indices"
_BACKWARD = "aten.max_pool2d_with_indices_backward"


def _shape(op: str, attrs: Attrs, x: DeviceTensor, y: DeviceTensor) -> bytes:
    """The slots PoolShape: x is pooled to y."""
    planes = math.prod(x.shape[:-2])
    given = [number for pair in sides(op, attrs) for number in pair]
    return whole(planes, *x.shape[-2:], *y.shape[-2:], *given)


@cuda_kernel(_FORWARD)
def _forward(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, (y, index) = operand(inputs, 0), outputs
    params = _shape(_FORWARD, attrs, x, y) + pointer(x, y, index)
    launch_over(y, "pool_forward", y.size, params)


@cuda_kernel(_BACKWARD)
def _backward(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    g, index, out = operand(inputs, 0), operand(inputs, 2), outputs[0]
    if not out.size:
        return
    device, planes, room = out.device, math.prod(out.shape[:-2]), Room(out.device)
    marked = room.at(room.take(planes))
    why = f"an index is outside [0, {out.shape[-2] * out.shape[-1]})"
    params = _shape(_BACKWARD, attrs, out, g) + pointer(g, index, out) + whole(marked)
    params += device.refusals.slots(_BACKWARD, why)
    device.launch("pool_check", (min(planes, 1 << 20), 1, 1), 256, params)
    device.refusals.after(_BACKWARD, why)
    launch_over(out, "pool_backward", out.size, params)
