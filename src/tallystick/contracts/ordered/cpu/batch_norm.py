"""Kernels of batch normalisation (NUMERICS 6.12 - 6.14)."""

from __future__ import annotations

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs, operand, optional
from tallystick.numerics.operators.batch_norm import output_mask, statistics_at
from tallystick.numerics.operators.common import flag, number, rn32
from tallystick.numerics.types import Attrs


def _eps(attrs: Attrs) -> float:
    return float(rn32(number(attrs, "eps")))


# --- training (6.12) ------------------------------------------------------------------------------
@kernel("aten._native_batch_norm_legit_functional", inplace=((0, 0),))
def _training(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    new_mean, new_var = outputs[3:] if len(outputs) > 3 else (None, None)
    weight, bias, running_mean, running_var = (optional(inputs, i) for i in range(1, 5))
    y, mean, rstd = outputs[:3]
    _core.batch_norm(
        operand(inputs, 0),
        weight,
        bias,
        running_mean,
        running_var,
        float(rn32(number(attrs, "momentum"))),
        number(attrs, "eps"),
        y,
        mean,
        rstd,
        new_mean,
        new_var,
    )


# --- the gradient (6.13) --------------------------------------------------------------------------
@kernel("aten.native_batch_norm_backward", inplace=((0, 0), (1, 0)))
def _backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    remaining = iter(outputs)
    dx, dw, db = (next(remaining) if on else None for on in output_mask(attrs))
    mean, spread = statistics_at(attrs)
    _core.batch_norm_backward(
        operand(inputs, 0),
        operand(inputs, 1),
        optional(inputs, 2),
        operand(inputs, mean),
        operand(inputs, spread),
        flag(attrs, "train"),
        _eps(attrs),
        dx,
        dw,
        db,
    )


# --- by running statistics (6.14) -----------------------------------------------------------------
@kernel("aten._native_batch_norm_legit_no_training", inplace=((0, 0),))
def _by_running(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.batch_norm_eval(
        operand(inputs, 0),
        optional(inputs, 1),
        optional(inputs, 2),
        operand(inputs, 3),
        operand(inputs, 4),
        _eps(attrs),
        outputs[0],
    )
