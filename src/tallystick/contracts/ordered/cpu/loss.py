"""Kernels of cross-entropy and negative log-likelihood (NUMERICS 7.1 - 7.3)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs, operand
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.common import integer
from tallystick.numerics.operators.loss import reduction_of
from tallystick.numerics.types import Attrs


def _check_targets(op: str, attrs: Attrs, target: np.ndarray, classes: int) -> None:
    """Check that every target is a class or ignore_index (NUMERICS 7.1). Raises
    RefusedOperandsError."""
    # As an unsigned number, a negative one is above every class.
    if target.size == 0 or target.view(np.uint64).max() < classes:
        return
    ignored = target == integer(attrs, "ignore_index")
    bad = np.flatnonzero(((target < 0) | (target >= classes)) & ~ignored)
    if bad.size:
        raise RefusedOperandsError(
            op,
            f"target {target[bad[0]]} in row {bad[0]} is not one of {classes} classes.",
            "Mark rows to skip with ignore_index.",
        )


def _targets(op: str, attrs: Attrs, inputs: Arrays, position: int) -> np.ndarray:
    target = operand(inputs, position)
    _check_targets(op, attrs, target, operand(inputs, position - 1).shape[1])
    return target


# --- cross_entropy (7.1, 7.2) ---------------------------------------------------------------------
_CE, _CE_BACKWARD = "tallystick.cross_entropy", "tallystick.cross_entropy_backward"


@kernel(_CE)
def _cross_entropy(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    target = _targets(_CE, attrs, inputs, 1)
    ignore, reduction = integer(attrs, "ignore_index"), reduction_of(_CE, attrs)
    _core.cross_entropy(operand(inputs, 0), target, ignore, reduction, *outputs)


@kernel(_CE_BACKWARD, inplace=((1, 0),))
def _cross_entropy_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    target = _targets(_CE_BACKWARD, attrs, inputs, 2)
    _core.cross_entropy_backward(
        operand(inputs, 0),
        operand(inputs, 1),
        target,
        operand(inputs, 3),
        operand(inputs, 4),
        integer(attrs, "ignore_index"),
        reduction_of(_CE_BACKWARD, attrs),
        outputs[0],
    )


# --- nll_loss (7.3) -------------------------------------------------------------------------------
_NLL, _NLL_BACKWARD = "aten.nll_loss_forward", "aten.nll_loss_backward"


@kernel(_NLL)
def _nll(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    target = _targets(_NLL, attrs, inputs, 1)
    ignore, reduction = integer(attrs, "ignore_index"), reduction_of(_NLL, attrs)
    _core.nll_loss(operand(inputs, 0), target, ignore, reduction, *outputs)


@kernel(_NLL_BACKWARD, inplace=((1, 0),))
def _nll_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    target = _targets(_NLL_BACKWARD, attrs, inputs, 2)
    _core.nll_loss_backward(
        operand(inputs, 0),
        operand(inputs, 1),
        target,
        operand(inputs, 3),
        integer(attrs, "ignore_index"),
        reduction_of(_NLL_BACKWARD, attrs),
        outputs[0],
    )
