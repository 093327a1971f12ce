"""Kernels of the optimizer steps (NUMERICS 11)."""

from __future__ import annotations

from typing import cast

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand, optional
from tallystick.numerics.operators.common import flag, number, rn32
from tallystick.numerics.types import Attrs

_OWN = ((0, 0), (2, 1), (3, 2))


def _factor(value: float) -> float:
    """A binary64 factor for the core, which rounds it to binary32 (NUMERICS 1.9); NaN canonical."""
    return float(value) if value == value else float(rn32(value))


def _scalar64(inputs: Arrays, position: int) -> np.float64:
    return cast(np.float64, operand(inputs, position)[()])


# --- adamw_step, adam_step (11.2, 11.3) -----------------------------------------------------------
@kernel("tallystick.adamw_step", "tallystick.adam_step", named=True, inplace=_OWN)
def _adam(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    decoupled = op == "tallystick.adamw_step"
    lr, beta1_power, beta2_power = (_scalar64(inputs, i) for i in (4, 5, 6))
    weight_decay = np.float64(number(attrs, "weight_decay"))
    beta1, beta2 = np.float64(number(attrs, "beta1")), np.float64(number(attrs, "beta2"))
    one = np.float64(1)
    # Binary64, each operation rounded, then RN32 in the core (NUMERICS 11.2).
    with np.errstate(all="ignore"):
        step_size, root_bc2 = lr / (one - beta1_power), np.sqrt(one - beta2_power)
        decay = one - lr * weight_decay if decoupled else weight_decay
    p, g, m, v = (operand(inputs, i) for i in range(4))
    p_out, m_out, v_out = outputs
    _core.adam_step(
        p,
        g,
        m,
        v,
        optional(inputs, 7),
        p_out,
        m_out,
        v_out,
        _factor(one - beta1),
        _factor(beta2),
        _factor(one - beta2),
        _factor(number(attrs, "eps")),
        _factor(step_size),
        _factor(root_bc2),
        _factor(decay),
        bool(not decoupled and weight_decay != 0),
        decoupled,
    )


# --- sgd_step (11.4) ------------------------------------------------------------------------------
@kernel("tallystick.sgd_step", inplace=((0, 0), (2, 1)))
def _sgd(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    weight_decay = number(attrs, "weight_decay")
    _core.sgd_step(
        operand(inputs, 0),
        operand(inputs, 1),
        inputs[2],
        optional(inputs, 4),
        outputs[0],
        outputs[1] if len(outputs) > 1 else None,
        _factor(_scalar64(inputs, 3)),
        _factor(number(attrs, "momentum")),
        _factor(1.0 - number(attrs, "dampening")),
        _factor(weight_decay),
        weight_decay != 0,
        flag(attrs, "nesterov"),
    )


# --- clip_coef (11.6) -----------------------------------------------------------------------------
@kernel("tallystick.clip_coef")
def _clip_coef(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    squares = np.empty(len(inputs), np.float32)
    for i in range(len(inputs)):
        squares[i] = operand(inputs, i)[()]
    _core.clip_coef(squares, float(rn32(number(attrs, "max_norm"))), *outputs)
