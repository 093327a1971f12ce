"""Kernel of places in a row's order (NUMERICS 3.9)."""

from __future__ import annotations

import numpy as np

from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs, is_f32
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import axis_of, flag, integer
from tallystick.numerics.types import Attrs

_INFINITY, _MAGNITUDE = np.int32(0x7F800000), np.int32(0x7FFFFFFF)


def _keys(x: np.ndarray) -> np.ndarray:
    """Integers in the order of the numbers: one zero, and one NaN above all (3.9)."""
    if not is_f32(x):
        return x
    seen = x.view(np.int32)
    size = seen & _MAGNITUDE
    ascending = np.where(seen < 0, -size, size)
    return np.asarray(np.where(size > _INFINITY, _MAGNITUDE, ascending))


@kernel("tallystick.rank", named=True, strided=True)
def _rank(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if x.ndim == 0:
        out.fill(0)
        return
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    keys = np.moveaxis(_keys(x), axis, -1)
    # The complement turns integers' order round and keeps ties, so a stable sort serves both ways.
    keys = np.ascontiguousarray(~keys if flag(attrs, "descending") else keys)
    order = np.argsort(keys, axis=-1, kind="stable")
    places = np.empty(order.shape, np.int64)
    along = np.broadcast_to(np.arange(order.shape[-1]), order.shape)
    np.put_along_axis(places, order, along, -1)
    out[...] = np.moveaxis(places, -1, axis)
