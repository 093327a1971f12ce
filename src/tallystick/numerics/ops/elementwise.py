"""Elementwise arithmetic, comparisons, conversions, mse_loss (NUMERICS 6.11, 7.4, 10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.numerics.ops._common import (
    ANY,
    FLOATS,
    NUMBERS,
    Arrays,
    Outputs,
    Result,
    Types,
    broadcast,
    check_dtype,
    check_shape,
    constant,
    fixed,
    is_f32,
    number,
    operand,
    operands,
    register_named,
    same_dtype,
    text,
    whole,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import DTYPE_NAMES, Attrs, TensorType

_FLOAT = AttrSpec("float")
_OPTIONAL_FLOAT = AttrSpec("float", required=False)


def _register(
    name: str,
    clause: str,
    attrs: dict[str, AttrSpec],
    infer: Callable[[str, Attrs, Types], Result],
    run: Callable[[str, Attrs, Arrays, Outputs], None],
    inplace: Sequence[int] = (0,),
) -> None:
    pairs = tuple((i, 0) for i in inplace)
    register_named(name, clause, attrs, infer, run, all_inputs_strided=True, inplace=pairs)


def _same_type(count: int, allowed: Sequence[str]) -> Callable[[str, Attrs, Types], Result]:
    check = fixed(count, allowed)

    def infer(op: str, _attrs: Attrs, inputs: Types) -> Result:
        dtype, shape = check(op, inputs)
        return (TensorType(dtype, shape),)

    return infer


# --- two operands (NUMERICS 10.1, 10.2, 10.8) -----------------------------------------------------
def _binary(kernel: str, integers: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    """Float operands go to the native kernel; integers wrap in numpy, exactly (10.8)."""

    def run(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        if is_f32(a):
            _core.ew2(kernel, a, b, out)
        else:
            integers(a, b, out=out)

    return run


def _run_sum(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
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


def _infer_scalar(allowed: Sequence[str], attrs_whole: Sequence[str]) -> Any:
    def infer(op: str, attrs: Attrs, inputs: Types) -> Result:
        (t,) = operands(op, inputs, 1)
        check_dtype(op, t, allowed)
        if t.dtype != "f32":
            for name in attrs_whole:
                whole(op, name, number(attrs, name))
        return (t,)

    return infer


def _infer_sum(op: str, attrs: Attrs, inputs: Types) -> Result:
    (out,) = _same_type(2, NUMBERS)(op, attrs, inputs)
    if out.dtype != "f32":
        whole(op, "alpha", number(attrs, "alpha"))
    return (out,)


for _name in ("add", "sub"):
    _register(
        f"aten.{_name}.Tensor", "10.2", {"alpha": _FLOAT}, _infer_sum, _run_sum, inplace=(0, 1)
    )
    _register(
        f"aten.{_name}.Scalar",
        "10.2",
        {"other": _FLOAT, "alpha": _FLOAT},
        _infer_scalar(NUMBERS, ("other", "alpha")),
        _run_sum,
    )


def _register_pair(name: str, kernel: str, integers: Any, allowed: Sequence[str]) -> None:
    compute = _binary(kernel, integers)

    def run_tensor(_op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        compute(operand(inputs, 0), operand(inputs, 1), outputs[0])

    def run_scalar(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        a = operand(inputs, 0)
        dtype = "f32" if is_f32(a) else "i64"
        compute(a, constant(op, "other", number(attrs, "other"), dtype), outputs[0])

    _register(f"{name}.Tensor", "10.2", {}, _same_type(2, allowed), run_tensor, inplace=(0, 1))
    infer = _infer_scalar(allowed, ("other",))
    _register(f"{name}.Scalar", "10.2", {"other": _FLOAT}, infer, run_scalar)


_register_pair("aten.mul", "mul", np.multiply, NUMBERS)
_register_pair("aten.div", "div", None, FLOATS)


def _register_extremum(name: str, kernel: str, integers: Any) -> None:
    compute = _binary(kernel, integers)

    def run(_op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        compute(operand(inputs, 0), operand(inputs, 1), outputs[0])

    _register(name, "10.4", {}, _same_type(2, NUMBERS), run, inplace=(0, 1))


_register_extremum("aten.maximum", "maximum", np.maximum)
_register_extremum("aten.minimum", "minimum", np.minimum)


# --- comparisons and logic (NUMERICS 1.10, 10.5) --------------------------------------------------
_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _infer_comparison(op: str, attrs: Attrs, inputs: Types) -> Result:
    if op.endswith(".Scalar"):
        (t,) = operands(op, inputs, 1)
        check_dtype(op, t, [d for d in ANY if d != "f64"])
        constant(op, "other", number(attrs, "other"), t.dtype)
        return (TensorType("bool", t.shape),)
    types = operands(op, inputs, 2)
    same_dtype(op, types)
    check_dtype(op, types[0], [d for d in ANY if d != "f64"])
    return (TensorType("bool", broadcast(op, types)),)


def _run_comparison(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    a, kind = operand(inputs, 0), op.split(".")[1]
    if op.endswith(".Scalar"):
        b = constant(op, "other", number(attrs, "other"), DTYPE_NAMES[a.dtype])
    else:
        b = operand(inputs, 1)
    if is_f32(a):
        _core.ew2(kind, a, b, outputs[0])
    else:
        _COMPARISONS[kind](a, b, out=outputs[0])


for _name in _COMPARISONS:
    for _form, _attrs in (("Tensor", {}), ("Scalar", {"other": _FLOAT})):
        _register(f"aten.{_name}.{_form}", "10.5", _attrs, _infer_comparison, _run_comparison, ())


def _register_logic(name: str, count: int, function: Any) -> None:
    def run(_op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        function(*(operand(inputs, i) for i in range(count)), out=outputs[0])

    _register(name, "10.5", {}, _same_type(count, ("bool",)), run, tuple(range(count)))


for _name in ("logical_and", "bitwise_and.Tensor"):
    _register_logic(f"aten.{_name}", 2, np.logical_and)
for _name in ("logical_or", "bitwise_or.Tensor"):
    _register_logic(f"aten.{_name}", 2, np.logical_or)
for _name in ("logical_not", "bitwise_not"):
    _register_logic(f"aten.{_name}", 1, np.logical_not)


# --- one operand (NUMERICS 6.11, 10.3) ------------------------------------------------------------
def _register_unary(name: str, clause: str, kernel: str, parameter: str | None = None) -> None:
    def run(_op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        value = number(attrs, parameter) if parameter else 0.0
        _core.ew1(kernel, operand(inputs, 0), outputs[0], value)

    attrs = {parameter: _FLOAT} if parameter else {}
    _register(name, clause, attrs, _same_type(1, FLOATS), run)


for _name in ("neg", "abs", "reciprocal", "sqrt", "square"):
    _register_unary(f"aten.{_name}", "10.3", _name)
_register_unary("aten.relu", "6.11", "relu")
_register_unary("aten.silu", "6.11", "silu")
_register_unary("aten.leaky_relu", "6.11", "leaky_relu", "negative_slope")


def _infer_clamp(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, NUMBERS)
    given = [name for name in ("min", "max") if name in attrs]
    if not given:
        raise UsageError(f"{op}: needs min, max or both.")
    for name in given:
        constant(op, name, number(attrs, name), t.dtype)
    return (t,)


def _run_clamp(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
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


_register(
    "aten.clamp", "10.4", {"min": _OPTIONAL_FLOAT, "max": _OPTIONAL_FLOAT}, _infer_clamp, _run_clamp
)


# --- backwards of activations (NUMERICS 6.11) -----------------------------------------------------
def _infer_pair_equal(op: str, _attrs: Attrs, inputs: Types) -> Result:
    g, x = operands(op, inputs, 2)
    check_dtype(op, g, FLOATS)
    check_dtype(op, x, FLOATS)
    check_shape(op, "the second operand", x, g.shape)
    return (g,)


def _register_backward(name: str, parameter: str | None = None) -> None:
    def run(_op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        value = number(attrs, parameter) if parameter else 0.0
        _core.ew2(name, operand(inputs, 0), operand(inputs, 1), outputs[0], value)

    attrs = {parameter: _FLOAT} if parameter else {}
    _register(f"aten.{name}", "6.11", attrs, _infer_pair_equal, run, inplace=(0, 1))


for _name in ("silu_backward", "tanh_backward", "sigmoid_backward"):
    _register_backward(_name)
_register_backward("threshold_backward", "threshold")


# --- conversions (NUMERICS 10.7) ------------------------------------------------------------------
_CONVERSIONS = {
    ("i64", "f32"),
    ("bool", "f32"),
    ("bool", "i64"),
    ("f32", "i64"),
    ("f32", "bool"),
    ("i64", "bool"),
    ("i32", "i64"),
    ("u8", "i64"),
}


def _infer_to_copy(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    wanted = text(attrs, "dtype")
    if (t.dtype, wanted) not in _CONVERSIONS:
        raise UsageError(f"{op}: converting {t.dtype} to {wanted} is not defined (NUMERICS 10.7).")
    return (TensorType(wanted, t.shape),)


def _run_to_copy(op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if out.dtype == np.bool_:
        np.not_equal(x, np.zeros((), x.dtype), out=out)
        return
    # 2^63 is exact in binary32; every value below it in magnitude fits.
    if is_f32(x) and not bool(np.all((x >= np.float32(-(2.0**63))) & (x < np.float32(2.0**63)))):
        raise RefusedOperandsError(op, "a NaN or out-of-range value has no 64-bit integer.")
    np.copyto(out, x, casting="unsafe")


_register("aten._to_copy", "10.7", {"dtype": AttrSpec("dtype")}, _infer_to_copy, _run_to_copy, ())


# --- mse_loss (NUMERICS 7.4) ----------------------------------------------------------------------
def _reduction(op: str, attrs: Attrs) -> str:
    reduction = text(attrs, "reduction")
    if reduction not in ("none", "mean", "sum"):
        raise UsageError(f"{op}: reduction must be none, mean or sum, got {reduction!r}.")
    return reduction


def _infer_mse(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = _infer_pair_equal(op, attrs, inputs)
    return (t if _reduction(op, attrs) == "none" else TensorType("f32", ()),)


def _run_mse(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, y, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    reduction = _reduction(op, attrs)
    squares = out if reduction == "none" else np.empty(x.shape, np.float32)
    _core.ew2("squared_difference", x, y, squares)
    if reduction != "none":
        _core.reduce_sum(squares, 1, squares.size, 1, out, False, reduction == "mean")


def _infer_mse_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    g, x, y = operands(op, inputs, 3)
    _infer_pair_equal(op, attrs, (x, y))
    check_dtype(op, g, FLOATS)
    check_shape(op, "the gradient", g, x.shape if _reduction(op, attrs) == "none" else ())
    return (x,)


def _run_mse_backward(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    g, x, y = (operand(inputs, i) for i in range(3))
    mean = _reduction(op, attrs) == "mean"
    _core.ew3("mse_backward_mean" if mean else "mse_backward", g, x, y, outputs[0], float(x.size))


_REDUCTION = {"reduction": AttrSpec("str")}
_register("aten.mse_loss", "7.4", _REDUCTION, _infer_mse, _run_mse, ())
_register(
    "aten.mse_loss_backward", "7.4", _REDUCTION, _infer_mse_backward, _run_mse_backward, (0, 1, 2)
)
