"""Kernels of the scatter class, and of embedding's look-up (NUMERICS 4, 9)."""

from __future__ import annotations

import math

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.common import axis_of, integer
from tallystick.numerics.types import Attrs


def _check_range(op: str, index: np.ndarray, limit: int) -> None:
    """Check that every index is in [0, limit) (NUMERICS 4.2, 9). Raises RefusedOperandsError."""
    flat = index.reshape(-1)
    bad = np.flatnonzero((flat < 0) | (flat >= limit))
    if bad.size:
        raise RefusedOperandsError(
            op, f"index {flat[bad[0]]} at position {bad[0]} is outside [0, {limit})."
        )


# --- embedding (9, 4.2) ---------------------------------------------------------------------------
_EMBEDDING, _EMBEDDING_BACKWARD = "aten.embedding", "aten.embedding_dense_backward"


@kernel(_EMBEDDING)
def _embedding(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    weight, index = operand(inputs, 0), operand(inputs, 1)
    _check_range(_EMBEDDING, index, weight.shape[0])
    _core.embedding(weight, index, outputs[0])


@kernel(_EMBEDDING_BACKWARD)
def _embedding_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, index = operand(inputs, 0), operand(inputs, 1)
    _check_range(_EMBEDDING_BACKWARD, index, integer(attrs, "num_weights"))
    _core.embedding_dense_backward(grad, index, integer(attrs, "padding_idx"), outputs[0])


# --- index_add (4.3) ------------------------------------------------------------------------------
_INDEX_ADD = "aten.index_add"


@kernel(_INDEX_ADD, inplace=((0, 0),))
def _index_add(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, index, source = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    axis = axis_of(_INDEX_ADD, integer(attrs, "dim"), x.ndim)
    _check_range(_INDEX_ADD, index, x.shape[axis])
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    _core.index_add(x, index, source, outer, inner, outputs[0])
