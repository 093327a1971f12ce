"""Calls of native/cuda/random.cu (NUMERICS 8)."""

from __future__ import annotations

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import f32, launch_over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.point import FOUR, aligned
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import integer, number
from tallystick.numerics.operators.random import WORD
from tallystick.numerics.types import Attrs

_WHY = "the seed must not be negative, and the step must be below 2^32"


def _draw(
    op: str,
    attrs: Attrs,
    key: DeviceTensor,
    out: DeviceTensor,
    threshold: int = 0,
    p0: float = 0,
    p1: float = 0,
) -> None:
    if not out.size:
        return
    refusals = out.device.refusals
    params = whole(out.size, aligned(out)) + pointer(key, out)
    params += whole(integer(attrs, "draw"), threshold) + f32(p0, p1) + refusals.slots(op, _WHY)
    launch_over(out, op.replace("tallystick.", "random_"), out.size, params, each=FOUR)
    refusals.after(op, _WHY)


@cuda_kernel("tallystick.dropout_mask", named=True)
def _dropout(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    # Scaling by a power of two is exact, and round() is to even (NUMERICS 8.4).
    threshold = round(number(attrs, "p") * WORD)
    _draw(op, attrs, operand(inputs, 0), outputs[0], threshold)


def _numbers(name: str, first: str, second: str) -> None:
    @cuda_kernel(name, named=True)
    def run(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        p0, p1 = number(attrs, first), number(attrs, second)
        _draw(op, attrs, operand(inputs, 0), outputs[0], p0=p0, p1=p1)


_numbers("tallystick.uniform", "low", "high")
_numbers("tallystick.normal", "mean", "std")
