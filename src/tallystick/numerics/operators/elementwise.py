"""Elementwise arithmetic, comparisons, conversions, mse_loss (NUMERICS 6.11, 7.4, 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    ANY,
    DTYPE,
    FLOAT,
    FLOATS,
    NUMBERS,
    Result,
    Types,
    broadcast,
    check_dtype,
    check_shape,
    constant,
    number,
    operands,
    same_dtype,
    same_type,
    text,
    whole,
)
from tallystick.numerics.registry import AttrSpec, TypeRule, operator
from tallystick.numerics.types import Attrs, TensorType

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_ONE = AttrSpec("float", 1.0)
_OTHER = {"other": FLOAT}
_ABSENT_OR_FLOAT = AttrSpec("float", required=False)
_REDUCTION = {"reduction": AttrSpec("str", "mean")}


# --- two operands (NUMERICS 10.1, 10.2, 10.8) -----------------------------------------------------
def _with_scalar(allowed: Sequence[str], attrs_whole: Sequence[str]) -> Any:
    def infer(op: str, attrs: Attrs, inputs: Types) -> Result:
        (t,) = operands(op, inputs, 1)
        check_dtype(op, t, allowed)
        if t.dtype != "f32":
            for name in attrs_whole:
                whole(op, name, number(attrs, name))
        return (t,)

    return infer


@operator(
    "aten.add.Tensor",
    "aten.sub.Tensor",
    clause="10.2",
    operands=("a", "b"),
    attrs={"alpha": _ONE},
    op_class="elementwise",
)
def _sum(op: str, attrs: Attrs, inputs: Types) -> Result:
    (out,) = same_type(2, NUMBERS)(op, attrs, inputs)
    if out.dtype != "f32":
        whole(op, "alpha", number(attrs, "alpha"))
    return (out,)


# --- comparisons and logic (NUMERICS 1.10, 10.5) --------------------------------------------------
@operator(
    *(f"aten.{name}.Tensor" for name in COMPARISONS),
    clause="10.5",
    operands=("a", "b"),
    op_class="elementwise",
)
@operator(
    *(f"aten.{name}.Scalar" for name in COMPARISONS),
    clause="10.5",
    operands=("a",),
    attrs=_OTHER,
    op_class="elementwise",
)
def _comparison(op: str, attrs: Attrs, inputs: Types) -> Result:
    if op.endswith(".Scalar"):
        (t,) = operands(op, inputs, 1)
        check_dtype(op, t, [d for d in ANY if d != "f64"])
        constant(op, "other", number(attrs, "other"), t.dtype)
        return (TensorType("bool", t.shape),)
    types = operands(op, inputs, 2)
    same_dtype(op, types)
    check_dtype(op, types[0], [d for d in ANY if d != "f64"])
    return (TensorType("bool", broadcast(op, types)),)


# --- one operand (NUMERICS 6.11, 10.3) ------------------------------------------------------------
@operator(
    "aten.clamp",
    clause="10.4",
    operands=("x",),
    attrs={"min": _ABSENT_OR_FLOAT, "max": _ABSENT_OR_FLOAT},
    op_class="elementwise",
    is_exact=True,
)
def _clamp(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, NUMBERS)
    given = [name for name in ("min", "max") if name in attrs]
    if not given:
        raise UsageError(f"{op}: needs min, max or both.")
    for name in given:
        constant(op, name, number(attrs, name), t.dtype)
    return (t,)


# --- backwards of activations (NUMERICS 6.11) -----------------------------------------------------
@operator(
    "aten.silu_backward",
    "aten.tanh_backward",
    "aten.sigmoid_backward",
    clause="6.11",
    operands=("grad", "x"),
    op_class="elementwise",
)
@operator(
    "aten.threshold_backward",
    clause="6.11",
    operands=("grad", "x"),
    attrs={"threshold": AttrSpec("float", 0.0)},
    op_class="elementwise",
    is_exact=True,
)
def _pair_of_one_shape(op: str, _attrs: Attrs, inputs: Types) -> Result:
    g, x = operands(op, inputs, 2)
    check_dtype(op, g, FLOATS)
    check_dtype(op, x, FLOATS)
    check_shape(op, "the second operand", x, g.shape)
    return (g,)


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
    ("i64", "i32"),
    ("i64", "u8"),
}


@operator(
    "aten._to_copy",
    clause="10.7",
    operands=("x",),
    attrs={"dtype": DTYPE},
    op_class="elementwise",
)
def _to_copy(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    wanted = text(attrs, "dtype")
    if (t.dtype, wanted) not in _CONVERSIONS:
        raise UsageError(f"{op}: converting {t.dtype} to {wanted} is not defined (NUMERICS 10.7).")
    return (TensorType(wanted, t.shape),)


# --- mse_loss (NUMERICS 7.4) ----------------------------------------------------------------------
def reduction_of(op: str, attrs: Attrs) -> str:
    reduction = text(attrs, "reduction")
    if reduction not in ("none", "mean", "sum"):
        raise UsageError(f"{op}: reduction must be none, mean or sum, got {reduction!r}.")
    return reduction


@operator(
    "aten.mse_loss", clause="7.4", operands=("x", "y"), attrs=_REDUCTION, op_class="elementwise"
)
def _mse(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = _pair_of_one_shape(op, attrs, inputs)
    return (t if reduction_of(op, attrs) == "none" else TensorType("f32", ()),)


@operator(
    "aten.mse_loss_backward",
    clause="7.4",
    operands=("grad", "x", "y"),
    attrs=_REDUCTION,
    op_class="elementwise",
)
def _mse_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    g, x, y = operands(op, inputs, 3)
    _pair_of_one_shape(op, attrs, (x, y))
    check_dtype(op, g, FLOATS)
    check_shape(op, "the gradient", g, x.shape if reduction_of(op, attrs) == "none" else ())
    return (x,)


# --- rules that several operators share -----------------------------------------------------------
def _declare(
    *names: str,
    clause: str,
    rule: TypeRule,
    takes: tuple[str, ...] = ("x",),
    **rest: Any,
) -> None:
    operator(*names, clause=clause, operands=takes, op_class="elementwise", **rest)(rule)


_PAIR = ("a", "b")
_declare(
    "aten.add.Scalar",
    "aten.sub.Scalar",
    clause="10.2",
    rule=_with_scalar(NUMBERS, ("other", "alpha")),
    takes=("a",),
    attrs={**_OTHER, "alpha": _ONE},
)
_declare("aten.mul.Tensor", clause="10.2", rule=same_type(2, NUMBERS), takes=_PAIR)
_declare("aten.div.Tensor", clause="10.2", rule=same_type(2, FLOATS), takes=_PAIR)
_declare("aten.floor_divide", clause="10.10", rule=same_type(2, ("i64",)), takes=_PAIR)
_declare(
    "aten.mul.Scalar",
    clause="10.2",
    rule=_with_scalar(NUMBERS, ("other",)),
    takes=("a",),
    attrs=_OTHER,
)
_declare(
    "aten.div.Scalar",
    clause="10.2",
    rule=_with_scalar(FLOATS, ("other",)),
    takes=("a",),
    attrs=_OTHER,
)
_declare(
    "aten.maximum",
    "aten.minimum",
    clause="10.4",
    rule=same_type(2, NUMBERS),
    takes=_PAIR,
    is_exact=True,
)
_declare(
    "aten.logical_and",
    "aten.logical_or",
    clause="10.5",
    rule=same_type(2, ("bool",)),
    takes=_PAIR,
)
_declare("aten.logical_not", clause="10.5", rule=same_type(1, ("bool",)))
# On i64: 10.11.
_declare(
    "aten.bitwise_and.Tensor",
    "aten.bitwise_or.Tensor",
    clause="10.5",
    rule=same_type(2, ("bool", "i64")),
    takes=_PAIR,
)
_declare("aten.bitwise_not", clause="10.5", rule=same_type(1, ("bool", "i64")))
_declare(
    "aten.bitwise_xor.Tensor",
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_right_shift.Tensor",
    clause="10.11",
    rule=same_type(2, ("i64",)),
    takes=_PAIR,
)
_declare("aten.neg", "aten.abs", clause="10.3", rule=same_type(1, FLOATS), is_exact=True)
_declare("aten.reciprocal", "aten.sqrt", "aten.square", clause="10.3", rule=same_type(1, FLOATS))
_declare("aten.relu", clause="6.11", rule=same_type(1, FLOATS), is_exact=True)
_declare("aten.silu", clause="6.11", rule=same_type(1, FLOATS))
_declare(
    "aten.leaky_relu",
    clause="6.11",
    rule=same_type(1, FLOATS),
    attrs={"negative_slope": AttrSpec("float", 0.01)},
)
