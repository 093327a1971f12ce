"""Pointwise operators on integers and bools (NUMERICS 10): calls of native/cuda/integer.cu and
convert.cu."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.kernels.cuda.point import constant_bits, point
from tallystick.kernels.cuda.table import Outputs, Tensors, operand
from tallystick.kernels.cuda.tensor import DeviceTensor
from tallystick.numerics.operators.common import constant, number
from tallystick.numerics.operators.elementwise import COMPARISONS
from tallystick.numerics.types import Attrs

_I64_MIN, _I64_MAX = 1 << 63, (1 << 63) - 1  # bits


def _attribute(op: str, attrs: Attrs, name: str, dtype: str) -> int:
    """The bits of a float attribute that is an operand of `dtype` (NUMERICS 10.1)."""
    return constant_bits(constant(op, name, number(attrs, name), dtype))


def _second(op: str, attrs: Attrs, inputs: Tensors) -> DeviceTensor | int:
    """The second operand of a two-operand operator: a tensor, or the attribute `other`."""
    if op.endswith(".Scalar"):
        return _attribute(op, attrs, "other", operand(inputs, 0).dtype)
    return operand(inputs, 1)


def _refusing(
    kernel: str, op: str, why: str, out: DeviceTensor, operands: list[DeviceTensor | int]
) -> None:
    if out.size:
        refusals = out.device.refusals
        point(kernel, out, operands, more=refusals.slots(op, why))
        refusals.after(op, why)


# --- arithmetic (NUMERICS 10.2, 10.4, 10.8, 10.10) ------------------------------------------------
def _sum(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    a, b = operand(inputs, 0), _second(op, attrs, inputs)
    base = op.split(".")[1]
    point(f"integer_{base}", outputs[0], [a, b, _attribute(op, attrs, "alpha", "i64")])


def _pair(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    base = op.split(".")[1].removeprefix("bitwise_")
    point(f"integer_{base}", outputs[0], [operand(inputs, 0), _second(op, attrs, inputs)])


def _floor_divide(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    operands: list[DeviceTensor | int] = [operand(inputs, 0), operand(inputs, 1)]
    _refusing("integer_floor_divide", op, "a divisor is 0", outputs[0], operands)


def _clamp(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    """Absent bounds are those of an i64."""
    low = _attribute(op, attrs, "min", "i64") if "min" in attrs else _I64_MIN
    high = _attribute(op, attrs, "max", "i64") if "max" in attrs else _I64_MAX
    point("integer_clamp", outputs[0], [operand(inputs, 0), low, high])


# --- comparisons and logic (NUMERICS 1.10, 10.5, 10.11) -------------------------------------------
# bool is compared as u8.
_COMPARED = {"i64": "int64_t", "i32": "int32_t", "u8": "uint8_t", "bool": "uint8_t"}


def _comparison(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    a, kind = operand(inputs, 0), op.split(".")[1]
    point(f"integer_{kind}_{_COMPARED[a.dtype]}", outputs[0], [a, _second(op, attrs, inputs)])


def _logic(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    operands = [operand(inputs, i) for i in range(len(inputs))]
    base = op.split(".")[1].partition("_")[2]
    point(f"integer_{base}_{_COMPARED[operands[0].dtype]}", outputs[0], operands)


# --- conversions (NUMERICS 10.7) ------------------------------------------------------------------
def _to_copy(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    kernel = f"convert_{x.dtype}_{out.dtype}"
    if (x.dtype, out.dtype) == ("f32", "i64"):
        _refusing(kernel, op, "a NaN or out-of-range value has no 64-bit integer", out, [x])
    else:
        point(kernel, out, [x])


# What computes an operator on integers and bools.
WHOLE: dict[str, Callable[[str, Attrs, Tensors, Outputs], None]] = {
    **{f"aten.{base}.{form}": _sum for base in ("add", "sub") for form in ("Tensor", "Scalar")},
    **{f"aten.mul.{form}": _pair for form in ("Tensor", "Scalar")},
    **{f"aten.bitwise_{side}_shift.Tensor": _pair for side in ("left", "right")},
    **{f"aten.{name}": _pair for name in ("maximum", "minimum")},
    **{f"aten.{k}.{form}": _comparison for k in COMPARISONS for form in ("Tensor", "Scalar")},
    **{f"aten.logical_{base}": _logic for base in ("and", "or", "not")},
    **{f"aten.bitwise_{base}.Tensor": _logic for base in ("and", "or", "xor")},
    "aten.bitwise_not": _logic,
    "aten.floor_divide": _floor_divide,
    "aten.clamp": _clamp,
    "aten._to_copy": _to_copy,
}
