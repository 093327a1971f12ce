"""Calls of native/cuda/softmax.cu (NUMERICS 6.1 - 6.4)."""

from __future__ import annotations

import math

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.launch import pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import axis_of, integer
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import Room, launch_rows, turned


def _along(kernel: str, arrays: list[DeviceTensor], out: DeviceTensor, dim: int) -> None:
    """kernel(*arrays, out) over rows along `dim`, by turned copies unless `dim` is last."""
    if not out.size:
        return
    axis = axis_of("softmax", dim, out.ndim)
    n = out.shape[axis] if out.ndim else 1
    shape = whole(out.size // n, n)
    if out.ndim == 0 or math.prod(out.shape[axis + 1 :]) == 1:
        launch_rows(out.device, kernel, out.size // n, n, pointer(*arrays, out) + shape)
        return
    room = Room(out.device)
    places = [room.take(out.nbytes) for _ in arrays]
    order = (*(a for a in range(out.ndim) if a != axis), axis)
    copies = [turned(x, order).dense(room.at(at)) for x, at in zip(arrays, places, strict=True)]
    for array, rows in zip(arrays, copies, strict=True):
        copy(turned(array, order), rows)
    launch_rows(out.device, kernel, out.size // n, n, pointer(*copies, copies[0]) + shape)
    copy(copies[0], turned(out, order))


def _softmax(name: str, kernel: str, count: int) -> None:
    @cuda_kernel(name, inplace=tuple((i, 0) for i in range(count)))
    def run(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        arrays = [operand(inputs, i) for i in range(count)]
        _along(kernel, arrays, outputs[0], integer(attrs, "dim"))


_softmax("aten._softmax", "softmax_forward", 1)
_softmax("aten._log_softmax", "softmax_log", 1)
_softmax("aten._softmax_backward_data", "softmax_backward", 2)
_softmax("aten._log_softmax_backward_data", "softmax_log_backward", 2)
