"""The pointwise operators: calls of native/cuda/pointwise.cu and elementary.cu on binary32, of
integer.cu on the rest (NUMERICS 5 to 7, 8.5, 10)."""

from __future__ import annotations

import numpy as np

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.point import constant_bits, point
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.kernels.loops import (
    FUNCTION,
    POINTWISE,
    POWER,
    WHOLE,
    Call,
    call_of,
    pointwise_operators,
    storage_shared,
)
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs

_FILES = {POINTWISE: "pointwise", FUNCTION: "elementary", POWER: "elementary", WHOLE: "integer"}


def point2(name: str, a: DeviceTensor, b: DeviceTensor | int, out: DeviceTensor) -> None:
    """out = name(a, b), elementwise; operands of any strides, broadcast; f32, out f32 or bool.

    `b` may be the bits of a constant."""
    point(f"pointwise_{name}", out, [a, b])


def _run(call: Call, op: str, attrs: Attrs, inputs: list[DeviceTensor], out: DeviceTensor) -> None:
    kernel = f"{_FILES[call.family]}_{call.name}"
    operands: list[DeviceTensor | int] = [
        constant_bits(x) if isinstance(x, np.ndarray) else x
        for x in call.gathered(op, attrs, inputs)
    ]
    if not call.why:
        p0, p1, *_ = (*call.numbers(op, attrs, inputs), 0.0, 0.0)
        point(kernel, out, operands, p0, p1)
    elif out.size:
        refusals = out.device.refusals
        point(kernel, out, operands, more=refusals.slots(op, call.why))
        refusals.after(op, call.why)


def _attach(spec: OpSpec) -> None:
    name, count = spec.name, len(spec.operands)

    @cuda_kernel(name, strided=True, inplace=storage_shared(spec))
    def run(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        tensors = [operand(inputs, i) for i in range(count)]
        call = call_of(name, attrs, [x.dtype for x in tensors])
        assert call is not None  # every form on these dtypes has a loop
        _run(call, name, attrs, tensors, outputs[0])


for _spec in pointwise_operators():
    if _spec.op_class != "optimizer":
        _attach(_spec)
