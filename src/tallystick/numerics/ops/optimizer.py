"""Optimizer steps, one node per parameter (NUMERICS 11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from tallystick import _core
from tallystick.errors import UsageError
from tallystick.numerics.ops._common import (
    FLOATS,
    Arrays,
    Outputs,
    Result,
    Types,
    check_dtype,
    check_shape,
    constant,
    describe,
    flag,
    number,
    operand,
    operands,
    optional,
    rn32,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs, TensorType

_SCALAR = TensorType("f32", ())
_SCALAR64 = TensorType("f64", ())


def _is_scalar(op: str, what: str, t: TensorType, dtype: str) -> None:
    check_dtype(op, t, (dtype,))
    check_shape(op, what, t, ())


def _scalar64(inputs: Arrays, position: int) -> np.float64:
    return cast(np.float64, operand(inputs, position)[()])


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
def _infer_beta_power(_attrs: Attrs, inputs: Types) -> Result:
    (p,) = operands("tallystick.beta_power", inputs, 1)
    _is_scalar("tallystick.beta_power", "the power", p, "f64")
    return (_SCALAR64,)


def _run_beta_power(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    with np.errstate(all="ignore"):
        power = float(_scalar64(inputs, 0) * np.float64(number(attrs, "beta")))
    outputs[0][...] = constant("tallystick.beta_power", "power", power, "f64")


# --- adamw_step, adam_step (11.2, 11.3) -----------------------------------------------------------
def _infer_adam(op: str, inputs: Types) -> Result:
    parameter = _same_as_parameter(op, operands(op, inputs[:4], 4))
    scalars = operands(op, inputs[4:7], 3)
    for what, t in zip(("lr", "beta1's power", "beta2's power"), scalars, strict=True):
        _is_scalar(op, what, t, "f64")
    _check_coefficient(op, inputs, 7)
    return parameter, parameter, parameter


def _run_adam(decoupled: bool, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    lr, beta1_power, beta2_power = (_scalar64(inputs, i) for i in (4, 5, 6))
    weight_decay = np.float64(number(attrs, "weight_decay"))
    beta1, beta2 = np.float64(number(attrs, "beta1")), np.float64(number(attrs, "beta2"))
    one = np.float64(1)
    # Binary64, each operation rounded, then RN32 (NUMERICS 11.2).
    with np.errstate(all="ignore"):
        step_size = rn32(float(lr / (one - beta1_power)))
        root_bc2 = rn32(float(np.sqrt(one - beta2_power)))
        decay = rn32(float(one - lr * weight_decay if decoupled else weight_decay))
        rest1, rest2 = rn32(float(one - beta1)), rn32(float(one - beta2))
    _core.adam_step(
        *(operand(inputs, i) for i in range(4)),
        optional(inputs, 7),
        *outputs,
        float(rest1),
        float(rn32(float(beta2))),
        float(rest2),
        float(rn32(number(attrs, "eps"))),
        float(step_size),
        float(root_bc2),
        float(decay),
        bool(not decoupled and weight_decay != 0),
        decoupled,
    )


# --- sgd_step (11.4) ------------------------------------------------------------------------------
def _infer_sgd(attrs: Attrs, inputs: Types) -> Result:
    op = "tallystick.sgd_step"
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


def _run_sgd(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    weight_decay = number(attrs, "weight_decay")
    with np.errstate(all="ignore"):
        undamped = float(np.float64(1) - np.float64(number(attrs, "dampening")))
    _core.sgd_step(
        operand(inputs, 0),
        operand(inputs, 1),
        inputs[2],
        optional(inputs, 4),
        outputs[0],
        outputs[1] if len(outputs) > 1 else None,
        float(rn32(float(_scalar64(inputs, 3)))),
        float(rn32(number(attrs, "momentum"))),
        float(rn32(undamped)),
        float(rn32(weight_decay)),
        weight_decay != 0,
        flag(attrs, "nesterov"),
    )


# --- clip_coef (11.6) -----------------------------------------------------------------------------
def _infer_clip_coef(_attrs: Attrs, inputs: Types) -> Result:
    op = "tallystick.clip_coef"
    if not inputs:
        raise UsageError(f"{op}: needs at least one sum of squares.")
    for t in operands(op, inputs, len(inputs)):
        _is_scalar(op, "each sum of squares", t, "f32")
    return _SCALAR, _SCALAR


def _run_clip_coef(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    squares = np.empty(len(inputs), np.float32)
    for i in range(len(inputs)):
        squares[i] = operand(inputs, i)[()]
    _core.clip_coef(squares, float(rn32(number(attrs, "max_norm"))), *outputs)


def _register(
    name: str,
    clause: str,
    attrs: dict[str, AttrSpec],
    infer: Callable[[Attrs, Types], Result],
    run: Callable[[Attrs, Arrays, Outputs], None],
    inplace: tuple[tuple[int, int], ...] = (),
) -> None:
    register(
        OpSpec(
            name=name,
            clause=clause,
            attrs=attrs,
            infer=infer,
            run=run,
            inplace=inplace,
            op_class="optimizer",
        )
    )


_FLOAT, _BOOL = AttrSpec("float"), AttrSpec("bool")
_ADAM = {"beta1": _FLOAT, "beta2": _FLOAT, "eps": _FLOAT, "weight_decay": _FLOAT}
_OWN = ((0, 0), (2, 1), (3, 2))
_register("tallystick.beta_power", "11.1", {"beta": _FLOAT}, _infer_beta_power, _run_beta_power)
_register(
    "tallystick.adamw_step",
    "11.2",
    _ADAM,
    lambda _, inputs: _infer_adam("tallystick.adamw_step", inputs),
    lambda *args: _run_adam(True, *args),
    _OWN,
)
_register(
    "tallystick.adam_step",
    "11.3",
    _ADAM,
    lambda _, inputs: _infer_adam("tallystick.adam_step", inputs),
    lambda *args: _run_adam(False, *args),
    _OWN,
)
_register(
    "tallystick.sgd_step",
    "11.4",
    {"momentum": _FLOAT, "dampening": _FLOAT, "weight_decay": _FLOAT, "nesterov": _BOOL},
    _infer_sgd,
    _run_sgd,
    ((0, 0), (2, 1)),
)
_register("tallystick.clip_coef", "11.6", {"max_norm": _FLOAT}, _infer_clip_coef, _run_clip_coef)
