"""Kernels of cross-entropy and negative log-likelihood (NUMERICS 7.1 - 7.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand
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


def _attach(op: str, function: Callable[..., None], target_at: int, **marks: Any) -> None:
    """The kernel of a loss, or of its gradient. Operand `target_at` is the targets, after x."""

    @kernel(op, **marks)
    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        x, target = operand(inputs, target_at - 1), operand(inputs, target_at)
        _check_targets(op, attrs, target, x.shape[1])
        function(*inputs, integer(attrs, "ignore_index"), reduction_of(op, attrs), *outputs)


_GRADIENT = ((1, 0),)  # takes the memory of x
_attach("tallystick.cross_entropy", _core.cross_entropy, 1)
_attach("tallystick.cross_entropy_backward", _core.cross_entropy_backward, 2, inplace=_GRADIENT)
_attach("aten.nll_loss_forward", _core.nll_loss, 1)
_attach("aten.nll_loss_backward", _core.nll_loss_backward, 2, inplace=_GRADIENT)
