"""Kernels of softmax and layer_norm with their gradients (NUMERICS 6.1 to 6.6)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand, padded, wanted
from tallystick.numerics.operators.common import (
    axis_of,
    integer,
    integers,
    number,
    output_mask,
    rn32,
)
from tallystick.numerics.types import Attrs


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
def _along(
    kernel: Callable[..., None], arrays: list[np.ndarray], out: np.ndarray, dim: int
) -> None:
    """Call kernel(*arrays, out, n) over rows along `dim`, on transposed copies unless `dim` is
    last."""
    axis = axis_of("softmax", dim, out.ndim)
    n = out.shape[axis] if out.ndim else 1
    if out.size == 0:
        return
    if out.ndim == 0 or math.prod(out.shape[axis + 1 :]) == 1:
        kernel(*arrays, out, n)
        return
    rows = [np.ascontiguousarray(np.moveaxis(a, axis, -1)) for a in arrays]
    moved = np.empty(rows[0].shape, np.float32)
    kernel(*rows, moved, n)
    np.copyto(out, np.moveaxis(moved, -1, axis))


# --- layer_norm (6.5, 6.6) ------------------------------------------------------------------------
@kernel("aten.native_layer_norm", inplace=((0, 0),))
def _layer_norm(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    (x, weight, bias), (y, mean, rstd) = padded(inputs, 3), outputs
    n, eps = math.prod(integers(attrs, "normalized_shape")), float(rn32(number(attrs, "eps")))
    _core.layer_norm(x, weight, bias, eps, y, mean, rstd, n)


@kernel("aten.native_layer_norm_backward", inplace=((0, 0), (1, 0)))
def _layer_norm_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    dx, dw, db = wanted(outputs, output_mask("layer_norm", attrs))
    g, x, mean, rstd, weight = padded(inputs, 5)[:5]
    # Only dx may share the storage of g or x. If another output shares it, the kernel reads a copy.
    for out in (dw, db):
        if out is not None:
            g = g.copy() if np.may_share_memory(out, g) else g
            x = x.copy() if np.may_share_memory(out, x) else x
    n = math.prod(integers(attrs, "normalized_shape"))
    _core.layer_norm_backward(g, x, mean, rstd, weight, dx, dw, db, n)


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
def _softmax(name: str, function: Callable[..., None], count: int) -> None:
    @kernel(name, inplace=tuple((i, 0) for i in range(count)))
    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        arrays = [operand(inputs, i) for i in range(count)]
        _along(function, arrays, outputs[0], integer(attrs, "dim"))


_softmax("aten._softmax", _core.softmax, 1)
_softmax("aten._log_softmax", _core.log_softmax, 1)
_softmax("aten._softmax_backward_data", _core.softmax_backward, 2)
_softmax("aten._log_softmax_backward_data", _core.log_softmax_backward, 2)
