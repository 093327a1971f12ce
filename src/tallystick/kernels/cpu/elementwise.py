"""Kernels of elementwise operators (NUMERICS 6.11, 7.4, 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.errors import RefusedOperandsError
from tallystick.kernels.cpu.common import Arrays, Outputs, is_f32, operand
from tallystick.kernels.table import kernel
from tallystick.numerics.operators.common import constant, number, whole
from tallystick.numerics.operators.elementwise import COMPARISONS, reduction_of
from tallystick.numerics.types import DTYPE_NAMES, Attrs

_FIRST, _EITHER = ((0, 0),), ((0, 0), (1, 0))


# --- two operands (NUMERICS 10.1, 10.2, 10.8) -----------------------------------------------------
def _binary(kernel: str, integers: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    """Float operands go to the native kernel; integers wrap in numpy, exactly (10.8)."""

    def run(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        if is_f32(a):
            _core.ew2(kernel, a, b, out)
        else:
            integers(a, b, out=out)

    return run


@kernel("aten.add.Tensor", "aten.sub.Tensor", named=True, strided=True, inplace=_EITHER)
@kernel("aten.add.Scalar", "aten.sub.Scalar", named=True, strided=True, inplace=_FIRST)
def _sum(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    """a ± alpha·b (NUMERICS 10.2): one fma where alpha ≠ 1."""
    a, out = operand(inputs, 0), outputs[0]
    scalar = op.endswith(".Scalar")
    dtype = "f32" if is_f32(a) else "i64"
    b = constant(op, "other", number(attrs, "other"), dtype) if scalar else operand(inputs, 1)
    alpha = number(attrs, "alpha")
    base = "add" if op.startswith("aten.add") else "sub"
    if dtype == "f32":
        if alpha == 1.0:
            _core.ew2(base, a, b, out)
        else:
            _core.ew2(base + "_alpha", a, b, out, alpha)
        return
    factor = np.asarray(whole(op, "alpha", alpha), dtype=np.int64)
    term = np.multiply(b, factor, out=np.empty(b.shape, np.int64))
    (np.add if base == "add" else np.subtract)(a, term, out=out)


@kernel("aten.floor_divide", named=True, strided=True, inplace=_EITHER)
def _floor_divide(op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    a, b = operand(inputs, 0), operand(inputs, 1)
    if outputs[0].size and not b.all():
        raise RefusedOperandsError(op, "a divisor is 0.")
    with np.errstate(over="ignore"):  # the one quotient that wraps (10.10)
        np.floor_divide(a, b, out=outputs[0])


# --- comparisons and logic (NUMERICS 1.10, 10.5) --------------------------------------------------
_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@kernel(
    *(f"aten.{name}.{form}" for name in COMPARISONS for form in ("Tensor", "Scalar")),
    named=True,
    strided=True,
)
def _comparison(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    a, kind = operand(inputs, 0), op.split(".")[1]
    if op.endswith(".Scalar"):
        b = constant(op, "other", number(attrs, "other"), DTYPE_NAMES[a.dtype])
    else:
        b = operand(inputs, 1)
    if is_f32(a):
        _core.ew2(kind, a, b, outputs[0])
    else:
        _COMPARISONS[kind](a, b, out=outputs[0])


# --- one operand (NUMERICS 6.11, 10.3) ------------------------------------------------------------
@kernel("aten.clamp", named=True, strided=True, inplace=_FIRST)
def _clamp(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    """min(max(x, lo), hi), absent bounds skipped (NUMERICS 10.4)."""
    x, out = operand(inputs, 0), outputs[0]
    low = number(attrs, "min") if "min" in attrs else None
    high = number(attrs, "max") if "max" in attrs else None
    if is_f32(x):
        kernel = "clamp_min" if high is None else "clamp_max" if low is None else "clamp"
        # Not `low or 0.0`: a bound of −0 is not +0 (NUMERICS 1.11).
        _core.ew1(kernel, x, out, 0.0 if low is None else low, 0.0 if high is None else high)
        return
    result = x
    if low is not None:
        result = np.maximum(result, constant(op, "min", low, "i64"))
    if high is not None:
        result = np.minimum(result, constant(op, "max", high, "i64"))
    out[...] = result


# --- conversions (NUMERICS 10.7) ------------------------------------------------------------------
@kernel("aten._to_copy", named=True, strided=True)
def _to_copy(op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if out.dtype == np.bool_:
        np.not_equal(x, np.zeros((), x.dtype), out=out)
        return
    # 2^63 is exact in binary32; every value below it in magnitude fits.
    if is_f32(x) and not bool(np.all((x >= np.float32(-(2.0**63))) & (x < np.float32(2.0**63)))):
        raise RefusedOperandsError(op, "a NaN or out-of-range value has no 64-bit integer.")
    np.copyto(out, x, casting="unsafe")


# --- mse_loss (NUMERICS 7.4) ----------------------------------------------------------------------
@kernel("aten.mse_loss", named=True, strided=True)
def _mse(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, y, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    reduction = reduction_of(op, attrs)
    squares = out if reduction == "none" else np.empty(x.shape, np.float32)
    _core.ew2("squared_difference", x, y, squares)
    if reduction != "none":
        _core.reduce_sum(squares, 1, squares.size, 1, out, False, reduction == "mean")


@kernel("aten.mse_loss_backward", named=True, strided=True, inplace=((0, 0), (1, 0), (2, 0)))
def _mse_backward(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    g, x, y = (operand(inputs, i) for i in range(3))
    mean = reduction_of(op, attrs) == "mean"
    _core.ew3("mse_backward_mean" if mean else "mse_backward", g, x, y, outputs[0], float(x.size))


# --- two operands (NUMERICS 10.2, 10.4) -----------------------------------------------------------
def _pair(name: str, function: str, integers: Any) -> None:
    compute = _binary(function, integers)

    @kernel(f"{name}.Tensor", strided=True, inplace=_EITHER)
    def tensor(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        compute(operand(inputs, 0), operand(inputs, 1), outputs[0])

    @kernel(f"{name}.Scalar", named=True, strided=True, inplace=_FIRST)
    def scalar(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        a = operand(inputs, 0)
        dtype = "f32" if is_f32(a) else "i64"
        compute(a, constant(op, "other", number(attrs, "other"), dtype), outputs[0])


_pair("aten.mul", "mul", np.multiply)
_pair("aten.div", "div", None)


def _extremum(name: str, integers: Any) -> None:
    compute = _binary(name, integers)

    @kernel(f"aten.{name}", strided=True, inplace=_EITHER)
    def run(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        compute(operand(inputs, 0), operand(inputs, 1), outputs[0])


_extremum("maximum", np.maximum)
_extremum("minimum", np.minimum)


# --- logic (NUMERICS 10.5) ------------------------------------------------------------------------
def _logic(function: Any, count: int, *names: str) -> None:
    @kernel(*names, strided=True, inplace=tuple((i, 0) for i in range(count)))
    def run(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        function(*(operand(inputs, i) for i in range(count)), out=outputs[0])


_logic(np.logical_and, 2, "aten.logical_and", "aten.bitwise_and.Tensor")
_logic(np.logical_or, 2, "aten.logical_or", "aten.bitwise_or.Tensor")
_logic(np.logical_not, 1, "aten.logical_not", "aten.bitwise_not")


# --- one operand (NUMERICS 6.11, 10.3) ------------------------------------------------------------
def _unary(name: str, parameter: str | None = None) -> None:
    @kernel(f"aten.{name}", strided=True, inplace=_FIRST)
    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        value = number(attrs, parameter) if parameter else 0.0
        _core.ew1(name, operand(inputs, 0), outputs[0], value)


for _name in ("neg", "abs", "reciprocal", "sqrt", "square", "relu", "silu"):
    _unary(_name)
_unary("leaky_relu", "negative_slope")


# --- backwards of activations (NUMERICS 6.11) -----------------------------------------------------
def _backward(name: str, parameter: str | None = None) -> None:
    @kernel(f"aten.{name}", strided=True, inplace=_EITHER)
    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        value = number(attrs, parameter) if parameter else 0.0
        _core.ew2(name, operand(inputs, 0), operand(inputs, 1), outputs[0], value)


for _name in ("silu_backward", "tanh_backward", "sigmoid_backward"):
    _backward(_name)
_backward("threshold_backward", "threshold")
