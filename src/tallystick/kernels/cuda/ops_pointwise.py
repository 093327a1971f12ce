"""Calls of native/cuda/pointwise.cu (NUMERICS 5, 6.11, 10)."""

from __future__ import annotations

from tallystick.kernels.cuda.launch import f32, launch_over, pointer, space
from tallystick.kernels.cuda.table import Outputs, Tensors, cuda_kernel, operand
from tallystick.kernels.cuda.tensor import DeviceTensor
from tallystick.numerics.types import Attrs

_FIRST, _EITHER = ((0, 0),), ((0, 0), (1, 0))


def point1(name: str, a: DeviceTensor, out: DeviceTensor, p0: float = 0, p1: float = 0) -> None:
    """out = name(a), elementwise; a of any strides, broadcast; f32."""
    params = space(out.shape, a) + pointer(a, out) + f32(p0, p1)
    launch_over(out, f"pointwise_{name}", out.size, params)


def point2(name: str, a: DeviceTensor, b: DeviceTensor, out: DeviceTensor, p0: float = 0) -> None:
    """out = name(a, b), elementwise; operands of any strides, broadcast; f32, out f32 or bool."""
    params = space(out.shape, a, b) + pointer(a, b, out) + f32(p0)
    launch_over(out, f"pointwise_{name}", out.size, params)


def _unary(name: str) -> None:
    @cuda_kernel(f"aten.{name}", strided=True, inplace=_FIRST)
    def run(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        point1(name, operand(inputs, 0), outputs[0])


for _name in ("neg", "relu"):
    _unary(_name)
