"""The kernel of mse_loss (NUMERICS 7.4)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.mse import reduction_of
from tallystick.numerics.types import Attrs


@kernel("aten.mse_loss", named=True, strided=True)
def _mse(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, y, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    reduction = reduction_of(op, attrs)
    squares = out if reduction == "none" else np.empty(x.shape, np.float32)
    _core.ew2("mse_loss", x, y, squares)
    if reduction != "none":
        _core.reduce_sum(squares, 1, squares.size, 1, out, False, reduction == "mean")
