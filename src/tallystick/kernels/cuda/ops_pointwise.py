"""Calls of native/cuda/pointwise.cu and elementary.cu (NUMERICS 5 to 7, 8.5, 10)."""

from __future__ import annotations

from tallystick.kernels.cuda.point import constant_bits, point
from tallystick.kernels.cuda.table import Outputs, Tensors, cuda_kernel, operand
from tallystick.kernels.cuda.tensor import DeviceTensor
from tallystick.numerics.operators.common import number, rn32
from tallystick.numerics.operators.elementary import FUNCTIONS
from tallystick.numerics.operators.elementwise import reduction_of
from tallystick.numerics.operators.nn import is_tanh
from tallystick.numerics.types import Attrs

_FIRST, _EITHER = ((0, 0),), ((0, 0), (1, 0))


def point1(name: str, a: DeviceTensor, out: DeviceTensor, p0: float = 0, p1: float = 0) -> None:
    """out = name(a), elementwise; a of any strides, broadcast; f32."""
    point(f"pointwise_{name}", out, [a], p0, p1)


def point2(
    name: str, a: DeviceTensor, b: DeviceTensor | int, out: DeviceTensor, p0: float = 0
) -> None:
    """out = name(a, b), elementwise; operands of any strides, broadcast; f32, out f32 or bool.

    `b` may be the bits of a constant."""
    point(f"pointwise_{name}", out, [a, b], p0)


# --- one operand (NUMERICS 5, 6.7 to 6.11, 10.3) --------------------------------------------------
def _unary(name: str, parameter: str | None = None) -> None:
    @cuda_kernel(f"aten.{name}", strided=True, inplace=_FIRST)
    def run(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        value = number(attrs, parameter) if parameter else 0.0
        point1(name, operand(inputs, 0), outputs[0], value)


for _name in ("neg", "abs", "reciprocal", "sqrt", "square", "relu", "silu"):
    _unary(_name)
_unary("leaky_relu", "negative_slope")


def _function(name: str) -> None:
    @cuda_kernel(f"aten.{name}", strided=True, inplace=_FIRST)
    def run(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        point(f"elementary_{name}", outputs[0], [operand(inputs, 0)])


for _name in FUNCTIONS:
    _function(_name)

# Exponents whose power is plain arithmetic (NUMERICS 10.6).
_POWERS = {2.0: "square", 3.0: "cube", 0.5: "sqrt", -1.0: "reciprocal"}


@cuda_kernel("aten.pow.Tensor_Scalar", strided=True, inplace=_FIRST)
def _pow(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out, exponent = operand(inputs, 0), outputs[0], number(attrs, "exponent")
    if exponent == 1.0:
        point2("mul", x, constant_bits(rn32(1.0)), out)  # x, but a NaN becomes canonical
    elif exponent in _POWERS:
        point1(_POWERS[exponent], x, out)
    elif exponent == -0.5:
        point("elementary_rsqrt", out, [x])
    else:
        point("elementary_pow", out, [x, constant_bits(rn32(exponent))])


@cuda_kernel("aten.gelu", strided=True, inplace=_FIRST)
def _gelu(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    point1(
        "gelu_tanh" if is_tanh("aten.gelu", attrs) else "gelu_erf", operand(inputs, 0), outputs[0]
    )


# --- backwards of activations (NUMERICS 6.8, 6.10, 6.11) ------------------------------------------
def _backward(name: str, parameter: str | None = None) -> None:
    @cuda_kernel(f"aten.{name}", strided=True, inplace=_EITHER)
    def run(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        value = number(attrs, parameter) if parameter else 0.0
        point2(name, operand(inputs, 0), operand(inputs, 1), outputs[0], value)


for _name in ("silu_backward", "tanh_backward", "sigmoid_backward"):
    _backward(_name)
_backward("threshold_backward", "threshold")


@cuda_kernel("aten.gelu_backward", strided=True, inplace=_EITHER)
def _gelu_backward(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    name = "gelu_tanh" if is_tanh("aten.gelu_backward", attrs) else "gelu_erf"
    point2(f"{name}_backward", operand(inputs, 0), operand(inputs, 1), outputs[0])


@cuda_kernel("aten.mse_loss_backward", named=True, strided=True, inplace=((0, 0), (1, 0), (2, 0)))
def _mse_backward(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    g, x, y = (operand(inputs, i) for i in range(3))
    name = "mse_backward_mean" if reduction_of(op, attrs) == "mean" else "mse_backward"
    point(f"pointwise_{name}", outputs[0], [g, x, y], float(x.size))


@cuda_kernel("tallystick.mask_scale", strided=True, inplace=_FIRST)
def _mask_scale(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    operands = [operand(inputs, 0), operand(inputs, 1)]
    point("pointwise_mask_scale", outputs[0], operands, number(attrs, "scale"))
