"""Optimizer steps, one node per parameter (NUMERICS 11)."""

from __future__ import annotations

from functools import partial

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOAT,
    Result,
    Types,
    check_dtype,
    check_floats,
    check_shape,
    declares,
    number,
    operands,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.forms import forms
from tallystick.numerics.values.graph import (
    Expr,
    attribute,
    binary32,
    case,
    convert,
    fma,
    has,
    is_,
    operand,
    primitive,
)
from tallystick.numerics.values.positions import (
    Part,
    element,
    given,
    in_reals,
    local,
    part,
    read,
    terms,
)

_ADAM_OPERANDS = (
    "p", "g", "m", "v", "lr", "beta1_power", "beta2_power", "coefficient?",
)  # fmt: skip
_ADAM = {
    "beta1": AttrSpec("float", 0.9),
    "beta2": AttrSpec("float", 0.999),
    "eps": AttrSpec("float", 1e-8),
}
_step = declares(
    "optimizer", uncaptured="the optimizer's part of a step emits it (program/update.py)"
)
_SCALAR, _SCALAR64 = TensorType("f32", ()), TensorType("f64", ())


def _is_scalar(op: str, what: str, t: TensorType, dtype: str) -> None:
    check_dtype(op, t, (dtype,))
    check_shape(op, what, t, ())


def _same_as_parameter(op: str, types: list[TensorType]) -> TensorType:
    """All of `types` f32 of the parameter's shape. Raises UsageError."""
    for t in types:
        check_floats(op, "each tensor of the step", t, types[0].shape)
    return types[0]


def _check_coefficient(op: str, inputs: Types, position: int) -> None:
    """The gradient coefficient at `position`, absent or f32[]."""
    c = inputs[position] if position < len(inputs) else None
    if c is not None:
        _is_scalar(op, "the gradient coefficient", c, "f32")


# --- what an element becomes (11.1 to 11.4) -------------------------------------------------------
# Scalars and attributes are binary64, each operation on them is rounded there, and RN32 is last.
def _clipped(g: Expr) -> Expr:
    """g times the gradient coefficient, where there is one (11.6)."""
    return case(has("coefficient"), g * operand("coefficient", "f32"), g)


def _decayed(p: Expr, g: Expr) -> Expr:
    """Weight decay as a part of the gradient."""
    by = convert(attribute("weight_decay", "f64"), "f32")
    return case(is_("weight_decay", 0.0), g, fma(by, p, g))


def _adam_values(
    decoupled: bool,
    p: Expr,
    g: Expr,
    m: Expr,
    v: Expr,
    lr: Expr,
    beta1_power: Expr,
    beta2_power: Expr,
) -> list[Expr]:
    beta1, beta2 = attribute("beta1", "f64"), attribute("beta2", "f64")
    step_size = convert(lr / (1.0 - beta1_power), "f32")
    root = convert(primitive("sqrt", 1.0 - beta2_power), "f32")
    g = _clipped(g)
    if not decoupled:
        g = _decayed(p, g)
    m = fma(convert(1.0 - beta1, "f32"), g - m, m)
    v = fma(convert(beta2, "f32"), v, (convert(1.0 - beta2, "f32") * g) * g)
    below = primitive("sqrt", v) / root + convert(attribute("eps", "f64"), "f32")
    kept = p * convert(1.0 - lr * attribute("weight_decay", "f64"), "f32") if decoupled else p
    return [fma(-step_size, m / below, kept), m, v]


_ADAM_DTYPES = ("f32", "f32", "f32", "f32", "f64", "f64", "f64")


def _plain_sgd(p: Expr, g: Expr, buffer: Expr, lr: Expr) -> Expr:
    return fma(-convert(lr, "f32"), _decayed(p, _clipped(g)), p)


def _momentum_sgd(p: Expr, g: Expr, buffer: Expr, lr: Expr) -> list[Expr]:
    momentum = convert(attribute("momentum", "f64"), "f32")
    undamped = convert(1.0 - attribute("dampening", "f64"), "f32")
    g = _decayed(p, _clipped(g))
    buffer = fma(momentum, buffer, undamped * g)
    step = case(is_("nesterov", True), fma(momentum, buffer, g), buffer)
    return [fma(-convert(lr, "f32"), step, p), buffer]


_SGD_DTYPES = ("f32", "f32", "f32", "f64")


# --- beta_power (11.1) ----------------------------------------------------------------------------
_POWER = forms(lambda power: power * attribute("beta", power), "f64")


@_step("tallystick.beta_power", "11.1", ("power",), attrs={"beta": FLOAT}, forms=_POWER)
def _beta_power(op: str, _attrs: Attrs, inputs: Types) -> Result:
    (p,) = operands("tallystick.beta_power", inputs, 1)
    _is_scalar("tallystick.beta_power", "the power", p, "f64")
    return (_SCALAR64,)


# --- adamw_step, adam_step (11.2, 11.3) -----------------------------------------------------------
@_step(
    "tallystick.adamw_step",
    "11.2",
    _ADAM_OPERANDS,
    attrs={**_ADAM, "weight_decay": AttrSpec("float", 0.01)},
    forms=forms(partial(_adam_values, True), _ADAM_DTYPES),
)
@_step(
    "tallystick.adam_step",
    "11.3",
    _ADAM_OPERANDS,
    attrs={**_ADAM, "weight_decay": AttrSpec("float", 0.0)},
    forms=forms(partial(_adam_values, False), _ADAM_DTYPES),
)
def _adam(op: str, _attrs: Attrs, inputs: Types) -> Result:
    parameter = _same_as_parameter(op, operands(op, inputs[:4], 4))
    scalars = operands(op, inputs[4:7], 3)
    for what, t in zip(("lr", "beta1's power", "beta2's power"), scalars, strict=True):
        _is_scalar(op, what, t, "f64")
    _check_coefficient(op, inputs, 7)
    return parameter, parameter, parameter


# --- sgd_step (11.4) ------------------------------------------------------------------------------
@_step(
    "tallystick.sgd_step",
    "11.4",
    ("p", "g", "buffer?", "lr", "coefficient?"),
    attrs={
        "momentum": AttrSpec("float", 0.0),
        "dampening": AttrSpec("float", 0.0),
        "weight_decay": AttrSpec("float", 0.0),
        "nesterov": AttrSpec("bool", False),
    },
    forms=(
        *forms(_plain_sgd, _SGD_DTYPES, when=is_("momentum", 0.0)),
        *forms(_momentum_sgd, _SGD_DTYPES),
    ),
)
def _sgd(op: str, attrs: Attrs, inputs: Types) -> Result:
    has_buffer, buffer = number(attrs, "momentum") != 0, inputs[2]
    if (buffer is not None) != has_buffer:
        raise UsageError(f"{op}: a momentum buffer is given exactly when momentum is not 0.")
    own = (*inputs[:2], buffer) if has_buffer else inputs[:2]
    parameter = _same_as_parameter(op, operands(op, own, len(own)))
    _is_scalar(op, "lr", operands(op, inputs[3:4], 1)[0], "f64")
    _check_coefficient(op, inputs, 4)
    return (parameter, parameter) if has_buffer else (parameter,)


# --- clip_coef (11.6) -----------------------------------------------------------------------------
def _clip_parts() -> tuple[Part, Part]:
    # The sums of squares are terms, so that the game opens one of them, not all.
    square = local("s[i]", read("squares", 0, number=element()))
    total = terms("total", given("squares"), square)
    norm = local("norm", primitive("sqrt", part(total)))
    # In the real numbers the attributes and constants of 11 stay binary64.
    limit = attribute("max_norm", "f32")
    limit = in_reals(limit, convert(attribute("max_norm", "f64"), "f32"))
    ratio = limit / (part(norm) + binary32(0x358637BD, 1e-6))
    return local("coefficient", primitive("min", ratio, 1.0)), norm


@_step("tallystick.clip_coef", "11.6", ("squares*",), _clip_parts(), {"max_norm": FLOAT})
def _clip_coef(op: str, _attrs: Attrs, inputs: Types) -> Result:
    if not inputs:
        raise UsageError(f"{op}: needs at least one sum of squares.")
    for t in operands(op, inputs, len(inputs)):
        _is_scalar(op, "each sum of squares", t, "f32")
    return _SCALAR, _SCALAR
