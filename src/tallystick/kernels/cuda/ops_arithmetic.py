"""Operators of one or two operands on every dtype (NUMERICS 9, 10): calls of
native/cuda/pointwise.cu on binary32, of integer.cu and convert.cu on the rest."""

from __future__ import annotations

from tallystick.kernels.cuda.ops_pointwise import point1, point2
from tallystick.kernels.cuda.point import constant_bits, point
from tallystick.kernels.cuda.table import Outputs, Tensors, cuda_kernel, operand
from tallystick.kernels.cuda.tensor import DeviceTensor
from tallystick.numerics.operators.common import constant, number
from tallystick.numerics.operators.elementwise import COMPARISONS
from tallystick.numerics.types import Attrs

_FIRST, _EITHER = ((0, 0),), ((0, 0), (1, 0))
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
@cuda_kernel("aten.add.Tensor", "aten.sub.Tensor", named=True, strided=True, inplace=_EITHER)
@cuda_kernel("aten.add.Scalar", "aten.sub.Scalar", named=True, strided=True, inplace=_FIRST)
def _sum(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    a, b, out = operand(inputs, 0), _second(op, attrs, inputs), outputs[0]
    alpha, base = number(attrs, "alpha"), op.split(".")[1]
    if a.dtype != "f32":
        point(f"integer_{base}", out, [a, b, _attribute(op, attrs, "alpha", "i64")])
    elif alpha == 1.0:
        point2(base, a, b, out)
    else:
        point2(f"{base}_alpha", a, b, out, alpha)


def _pair(base: str) -> None:
    def run(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        a = operand(inputs, 0)
        family = "pointwise" if a.dtype == "f32" else "integer"
        point(f"{family}_{base}", outputs[0], [a, _second(op, attrs, inputs)])

    if base in ("maximum", "minimum"):
        cuda_kernel(f"aten.{base}", named=True, strided=True, inplace=_EITHER)(run)
        return
    cuda_kernel(f"aten.{base}.Tensor", named=True, strided=True, inplace=_EITHER)(run)
    cuda_kernel(f"aten.{base}.Scalar", named=True, strided=True, inplace=_FIRST)(run)


for _name in ("mul", "div", "maximum", "minimum"):
    _pair(_name)


@cuda_kernel("aten.floor_divide", named=True, strided=True, inplace=_EITHER)
def _floor_divide(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    operands: list[DeviceTensor | int] = [operand(inputs, 0), operand(inputs, 1)]
    _refusing("integer_floor_divide", op, "a divisor is 0", outputs[0], operands)


@cuda_kernel("aten.clamp", named=True, strided=True, inplace=_FIRST)
def _clamp(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    """min(max(x, lo), hi), absent bounds skipped (NUMERICS 10.4)."""
    x, out = operand(inputs, 0), outputs[0]
    low = number(attrs, "min") if "min" in attrs else None
    high = number(attrs, "max") if "max" in attrs else None
    if x.dtype == "f32":
        name = "clamp_min" if high is None else "clamp_max" if low is None else "clamp"
        # Not `low or 0.0`: a bound of −0 is not +0 (NUMERICS 1.11).
        point1(name, x, out, 0.0 if low is None else low, 0.0 if high is None else high)
        return
    low_bits = _I64_MIN if low is None else _attribute(op, attrs, "min", "i64")
    high_bits = _I64_MAX if high is None else _attribute(op, attrs, "max", "i64")
    point("integer_clamp", out, [x, low_bits, high_bits])


# --- comparisons and logic (NUMERICS 1.10, 10.5, 10.11) -------------------------------------------
# bool is compared as u8.
_COMPARED = {"i64": "int64_t", "i32": "int32_t", "u8": "uint8_t", "bool": "uint8_t"}


@cuda_kernel(
    *(f"aten.{name}.{form}" for name in COMPARISONS for form in ("Tensor", "Scalar")),
    named=True,
    strided=True,
)
def _comparison(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    a, kind = operand(inputs, 0), op.split(".")[1]
    kernel = f"pointwise_{kind}" if a.dtype == "f32" else f"integer_{kind}_{_COMPARED[a.dtype]}"
    point(kernel, outputs[0], [a, _second(op, attrs, inputs)])


def _logic(base: str, count: int, *names: str) -> None:
    @cuda_kernel(*names, strided=True, inplace=tuple((i, 0) for i in range(count)))
    def run(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        operands = [operand(inputs, i) for i in range(count)]
        point(f"integer_{base}_{_COMPARED[operands[0].dtype]}", outputs[0], operands)


_logic("and", 2, "aten.logical_and", "aten.bitwise_and.Tensor")
_logic("or", 2, "aten.logical_or", "aten.bitwise_or.Tensor")
_logic("xor", 2, "aten.bitwise_xor.Tensor")
_logic("not", 1, "aten.logical_not", "aten.bitwise_not")


def _shift(base: str) -> None:
    @cuda_kernel(f"aten.bitwise_{base}.Tensor", strided=True, inplace=_EITHER)
    def run(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        point(f"integer_{base}", outputs[0], [operand(inputs, 0), operand(inputs, 1)])


_shift("left_shift")
_shift("right_shift")


# --- conversions and choices (NUMERICS 9, 10.7) ---------------------------------------------------
@cuda_kernel("aten._to_copy", named=True, strided=True)
def _to_copy(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    kernel = f"convert_{x.dtype}_{out.dtype}"
    if (x.dtype, out.dtype) == ("f32", "i64"):
        _refusing(kernel, op, "a NaN or out-of-range value has no 64-bit integer", out, [x])
    else:
        point(kernel, out, [x])


@cuda_kernel("aten.where", strided=True, inplace=((1, 0), (2, 0)))
def _where(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    point(f"convert_where_{out.itemsize}", out, [operand(inputs, i) for i in range(3)])


@cuda_kernel("aten.masked_fill", named=True, strided=True, inplace=_FIRST)
def _masked_fill(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, mask = operand(inputs, 0), operand(inputs, 1)
    fill = _attribute(op, attrs, "value", x.dtype)
    point(f"convert_where_{x.itemsize}", outputs[0], [mask, fill, x])
