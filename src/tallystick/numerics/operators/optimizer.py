"""Optimizer steps, one node per parameter (NUMERICS 11)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOAT,
    FLOATS,
    Result,
    Types,
    check_dtype,
    check_shape,
    describe,
    number,
    operands,
)
from tallystick.numerics.registry import AttrSpec, operator
from tallystick.numerics.types import Attrs, TensorType

_ADAM_OPERANDS = (
    "p", "g", "m", "v", "lr", "beta1_power", "beta2_power", "coefficient?",
)  # fmt: skip
_ADAM = {
    "beta1": AttrSpec("float", 0.9),
    "beta2": AttrSpec("float", 0.999),
    "eps": AttrSpec("float", 1e-8),
}
_UPDATE = "the optimizer's part of a step emits it (program/update.py)"

_SCALAR = TensorType("f32", ())


_SCALAR64 = TensorType("f64", ())


def _is_scalar(op: str, what: str, t: TensorType, dtype: str) -> None:
    check_dtype(op, t, (dtype,))
    check_shape(op, what, t, ())


def _same_as_parameter(op: str, types: list[TensorType]) -> TensorType:
    """All of `types` f32 of the parameter's shape. Raises UsageError."""
    for t in types:
        check_dtype(op, t, FLOATS)
        check_shape(op, "each tensor of the step", t, types[0].shape)
    return types[0]


def _check_coefficient(op: str, inputs: Types, position: int) -> None:
    """The gradient coefficient at `position`, absent or f32[]; nothing after it."""
    if len(inputs) > position + 1:
        raise UsageError(f"{op}: too many operands: {describe(inputs)}.")
    c = inputs[position] if position < len(inputs) else None
    if c is not None:
        _is_scalar(op, "the gradient coefficient", c, "f32")


# --- beta_power (11.1) ----------------------------------------------------------------------------
@operator(
    "tallystick.beta_power",
    clause="11.1",
    operands=("power",),
    attrs={"beta": FLOAT},
    op_class="optimizer",
    uncaptured=_UPDATE,
)
def _beta_power(op: str, _attrs: Attrs, inputs: Types) -> Result:
    (p,) = operands("tallystick.beta_power", inputs, 1)
    _is_scalar("tallystick.beta_power", "the power", p, "f64")
    return (_SCALAR64,)


# --- adamw_step, adam_step (11.2, 11.3) -----------------------------------------------------------
@operator(
    "tallystick.adamw_step",
    clause="11.2",
    operands=_ADAM_OPERANDS,
    attrs={**_ADAM, "weight_decay": AttrSpec("float", 0.01)},
    op_class="optimizer",
    uncaptured=_UPDATE,
)
@operator(
    "tallystick.adam_step",
    clause="11.3",
    operands=_ADAM_OPERANDS,
    attrs={**_ADAM, "weight_decay": AttrSpec("float", 0.0)},
    op_class="optimizer",
    uncaptured=_UPDATE,
)
def _adam(op: str, _attrs: Attrs, inputs: Types) -> Result:
    parameter = _same_as_parameter(op, operands(op, inputs[:4], 4))
    scalars = operands(op, inputs[4:7], 3)
    for what, t in zip(("lr", "beta1's power", "beta2's power"), scalars, strict=True):
        _is_scalar(op, what, t, "f64")
    _check_coefficient(op, inputs, 7)
    return parameter, parameter, parameter


# --- sgd_step (11.4) ------------------------------------------------------------------------------
@operator(
    "tallystick.sgd_step",
    clause="11.4",
    operands=("p", "g", "buffer?", "lr", "coefficient?"),
    attrs={
        "momentum": AttrSpec("float", 0.0),
        "dampening": AttrSpec("float", 0.0),
        "weight_decay": AttrSpec("float", 0.0),
        "nesterov": AttrSpec("bool", False),
    },
    op_class="optimizer",
    uncaptured=_UPDATE,
)
def _sgd(op: str, attrs: Attrs, inputs: Types) -> Result:
    if not 4 <= len(inputs) <= 5:
        raise UsageError(f"{op}: takes p, g, buf, lr and c, got {describe(inputs)}.")
    has_buffer, buffer = number(attrs, "momentum") != 0, inputs[2]
    if (buffer is not None) != has_buffer:
        raise UsageError(f"{op}: a momentum buffer is given exactly when momentum is not 0.")
    own = (*inputs[:2], buffer) if has_buffer else inputs[:2]
    parameter = _same_as_parameter(op, operands(op, own, len(own)))
    _is_scalar(op, "lr", operands(op, inputs[3:4], 1)[0], "f64")
    _check_coefficient(op, inputs, 4)
    return (parameter, parameter) if has_buffer else (parameter,)


# --- clip_coef (11.6) -----------------------------------------------------------------------------
@operator(
    "tallystick.clip_coef",
    clause="11.6",
    operands=("squares*",),
    attrs={"max_norm": FLOAT},
    op_class="optimizer",
    uncaptured=_UPDATE,
)
def _clip_coef(op: str, _attrs: Attrs, inputs: Types) -> Result:
    if not inputs:
        raise UsageError(f"{op}: needs at least one sum of squares.")
    for t in operands(op, inputs, len(inputs)):
        _is_scalar(op, "each sum of squares", t, "f32")
    return _SCALAR, _SCALAR
