"""Sums, means, extremes, argmax and variance (NUMERICS 3)."""

from __future__ import annotations

import math

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    INT,
    INTS,
    NUMBERS,
    Result,
    Types,
    axis_of,
    check_dtype,
    flag,
    integer,
    integers,
    operands,
)
from tallystick.numerics.registry import DIVIDED, SUM, AttrSpec, operator
from tallystick.numerics.types import Attrs, TensorType

_KEEPDIM = AttrSpec("bool", False)
_DIMS = {"dim": INTS, "keepdim": _KEEPDIM}
_DIM = {"dim": INT, "keepdim": _KEEPDIM}


def reduced_axes(op: str, attrs: Attrs, rank: int) -> tuple[int, ...]:
    """The reduced axes, ascending (NUMERICS 3.3); without `dim`, or with none in it, all."""
    if "dim" not in attrs:
        return tuple(range(rank))
    dim = attrs["dim"]
    given = (integer(attrs, "dim"),) if isinstance(dim, int) else integers(attrs, "dim")
    axes = sorted(axis_of(op, d, rank) for d in given)
    if len(set(axes)) != len(axes):
        raise UsageError(f"{op}: an axis is reduced twice in {given}.")
    if rank == 0:
        return ()
    return tuple(axes) if axes else tuple(range(rank))


def _shape(op: str, attrs: Attrs, shape: tuple[int, ...]) -> tuple[int, ...]:
    axes = reduced_axes(op, attrs, len(shape))
    if "keepdim" in attrs and flag(attrs, "keepdim"):
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


# --- sum and mean (NUMERICS 3.4) ------------------------------------------------------------------
@operator("aten.mean", clause="3.4", operands=("x",), op_class="reduction", rounded=DIVIDED)
@operator(
    "aten.mean.dim",
    clause="3.4",
    operands=("x",),
    attrs=_DIMS,
    op_class="reduction",
    rounded=DIVIDED,
)
@operator("aten.sum", clause="3.4", operands=("x",), op_class="reduction", rounded=SUM)
@operator(
    "aten.sum.dim_IntList",
    clause="3.4",
    operands=("x",),
    attrs=_DIMS,
    op_class="reduction",
    rounded=SUM,
)
def _sum(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    mean = op.startswith("aten.mean")
    check_dtype(op, t, FLOATS if mean else ("f32", "i64", "bool"))
    return (TensorType("f32" if t.dtype == "f32" else "i64", _shape(op, attrs, t.shape)),)


# --- extremes (NUMERICS 3.5) ----------------------------------------------------------------------
@operator(
    "aten.amax",
    "aten.amin",
    clause="3.5",
    operands=("x",),
    attrs=_DIMS,
    op_class="reduction",
    is_exact=True,
)
@operator(
    "aten.max", "aten.min", clause="3.5", operands=("x",), op_class="reduction", is_exact=True
)
@operator("aten.argmax", clause="3.5", operands=("x",), attrs=_DIM, op_class="reduction")
def _extreme(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, NUMBERS)
    shape = _shape(op, attrs, t.shape)
    if t.numel == 0 and math.prod(shape) != 0:
        raise UsageError(f"{op}: an empty axis of {t} has no extreme (NUMERICS 3.5).")
    return (TensorType("i64" if op == "aten.argmax" else t.dtype, shape),)


# --- variance and sum of squares (NUMERICS 3.6, 3.7) ----------------------------------------------
@operator(
    "aten.var_mean.correction",
    clause="3.6",
    operands=("x",),
    attrs={**_DIMS, "correction": AttrSpec("float", 1.0)},
    op_class="reduction",
)
def _var_mean(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, FLOATS)
    out = TensorType("f32", _shape(op, attrs, t.shape))
    return out, out


@operator("aten.cumsum", clause="3.8", operands=("x",), attrs={"dim": INT}, op_class="reduction")
def _cumsum(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, FLOATS)
    axis_of(op, integer(attrs, "dim"), len(t.shape))
    return (t,)


# --- places (NUMERICS 3.9) ------------------------------------------------------------------------
@operator(
    "tallystick.rank",
    clause="3.9",
    operands=("x",),
    attrs={"dim": INT, "descending": AttrSpec("bool", False)},
    op_class="reduction",
)
def _rank(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, NUMBERS)
    axis_of(op, integer(attrs, "dim"), len(t.shape))
    return (TensorType("i64", t.shape),)


@operator("tallystick.sum_squares", clause="3.7", operands=("x",), op_class="reduction")
def _sum_squares(op: str, _attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, FLOATS)
    return (TensorType("f32", ()),)
