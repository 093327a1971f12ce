"""The scatter class, and embedding's look-up (NUMERICS 4, 9)."""

from __future__ import annotations

import math

import numpy as np

from tallystick import _core
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.numerics.ops._common import (
    FLOATS,
    Arrays,
    Outputs,
    Result,
    Types,
    axis_of,
    check_dtype,
    check_shape,
    flag,
    integer,
    operand,
    operands,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs, TensorType


def _check_range(op: str, index: np.ndarray, limit: int) -> None:
    """Every index in [0, limit) (NUMERICS 4.2, 9). Raises RefusedOperandsError."""
    flat = index.reshape(-1)
    bad = np.flatnonzero((flat < 0) | (flat >= limit))
    if bad.size:
        raise RefusedOperandsError(
            op, f"index {flat[bad[0]]} at position {bad[0]} is outside [0, {limit})."
        )


# --- embedding (9, 4.2) ---------------------------------------------------------------------------
_EMBEDDING, _EMBEDDING_BACKWARD = "aten.embedding", "aten.embedding_dense_backward"


def _infer_embedding(_attrs: Attrs, inputs: Types) -> Result:
    weight, index = operands(_EMBEDDING, inputs, 2)
    check_dtype(_EMBEDDING, weight, FLOATS)
    check_dtype(_EMBEDDING, index, ("i64",))
    if len(weight.shape) != 2:
        raise UsageError(f"{_EMBEDDING}: the weight must have two axes, got {weight}.")
    return (TensorType("f32", index.shape + weight.shape[1:]),)


def _run_embedding(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    weight, index = operand(inputs, 0), operand(inputs, 1)
    _check_range(_EMBEDDING, index, weight.shape[0])
    _core.embedding(weight, index, outputs[0])


def _infer_embedding_backward(attrs: Attrs, inputs: Types) -> Result:
    op = _EMBEDDING_BACKWARD
    grad, index = operands(op, inputs, 2)
    check_dtype(op, grad, FLOATS)
    check_dtype(op, index, ("i64",))
    if flag(attrs, "scale_grad_by_freq"):
        raise UsageError(f"{op}: scale_grad_by_freq is not part of any contract.")
    if not grad.shape:
        raise UsageError(f"{op}: the gradient needs a last axis, got {grad}.")
    check_shape(op, "the gradient", grad, index.shape + grad.shape[-1:])
    weights = integer(attrs, "num_weights")
    if weights < 0:
        raise UsageError(f"{op}: num_weights must not be negative, got {weights}.")
    return (TensorType("f32", (weights, grad.shape[-1])),)


def _run_embedding_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, index = operand(inputs, 0), operand(inputs, 1)
    _check_range(_EMBEDDING_BACKWARD, index, integer(attrs, "num_weights"))
    _core.embedding_dense_backward(grad, index, integer(attrs, "padding_idx"), outputs[0])


# --- index_add (4.3) ------------------------------------------------------------------------------
_INDEX_ADD = "aten.index_add"


def _infer_index_add(attrs: Attrs, inputs: Types) -> Result:
    x, index, source = operands(_INDEX_ADD, inputs, 3)
    check_dtype(_INDEX_ADD, x, FLOATS)
    check_dtype(_INDEX_ADD, source, FLOATS)
    check_dtype(_INDEX_ADD, index, ("i64",))
    if not x.shape or len(index.shape) != 1:
        raise UsageError(
            f"{_INDEX_ADD}: takes x with an axis and a 1-d index, got {x} and {index}."
        )
    axis = axis_of(_INDEX_ADD, integer(attrs, "dim"), len(x.shape))
    wanted = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    check_shape(_INDEX_ADD, "the source", source, wanted)
    return (x,)


def _run_index_add(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, index, source = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    axis = axis_of(_INDEX_ADD, integer(attrs, "dim"), x.ndim)
    _check_range(_INDEX_ADD, index, x.shape[axis])
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    _core.index_add(x, index, source, outer, inner, outputs[0])


register(
    OpSpec(
        name=_EMBEDDING,
        clause="9",
        attrs={"padding_idx": AttrSpec("int")},
        infer=_infer_embedding,
        run=_run_embedding,
        op_class="move",
    )
)
register(
    OpSpec(
        name=_EMBEDDING_BACKWARD,
        clause="4.2",
        attrs={
            "num_weights": AttrSpec("int"),
            "padding_idx": AttrSpec("int"),
            "scale_grad_by_freq": AttrSpec("bool"),
        },
        infer=_infer_embedding_backward,
        run=_run_embedding_backward,
        op_class="scatter",
    )
)
register(
    OpSpec(
        name=_INDEX_ADD,
        clause="4.3",
        attrs={"dim": AttrSpec("int")},
        infer=_infer_index_add,
        run=_run_index_add,
        inplace=((0, 0),),
        op_class="scatter",
    )
)
