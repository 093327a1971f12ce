"""Sums, means, extremes, argmax and variance (NUMERICS 3)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.errors import UsageError
from tallystick.numerics.ops._common import (
    FLOATS,
    NUMBERS,
    Arrays,
    Outputs,
    Result,
    Types,
    axis_of,
    check_dtype,
    flag,
    integer,
    integers,
    number,
    operand,
    operands,
    register_named,
)
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs, TensorType

_DIMS = {"dim": AttrSpec("ints"), "keepdim": AttrSpec("bool")}
_DIM = {"dim": AttrSpec("int"), "keepdim": AttrSpec("bool")}


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


def extents(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(outer, n, inner) if the reduced axes are neighbours, axes of one aside; else None."""
    real = [i for i, size in enumerate(shape) if size != 1]
    reduced = [i for i in real if i in axes]
    if not reduced:
        return math.prod(shape), 1, 1
    first, last = reduced[0], reduced[-1]
    if any(first < i < last and i not in axes for i in real):
        return None
    count = math.prod(shape[i] for i in reduced)
    return math.prod(shape[:first]), count, math.prod(shape[last + 1 :])


def reduced_rows(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """x with its reduced axes last, contiguous, in the order of NUMERICS 3.3."""
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = x.transpose((*kept, *axes))
    rows: np.ndarray = np.empty(moved.shape, x.dtype)
    _core.copy_strided(moved, rows)
    return rows


def _seen(x: np.ndarray, axes: tuple[int, ...], rows: bool) -> tuple[np.ndarray, int, int, int]:
    """x as (array, outer, n, inner); with `rows`, inner is 1."""
    found = extents(x.shape, axes)
    if found is not None and (found[2] == 1 or not rows):
        return x, *found
    count = math.prod(x.shape[i] for i in axes)
    outer = math.prod(n for i, n in enumerate(x.shape) if i not in axes)
    return reduced_rows(x, axes), outer, count, 1


_register = partial(register_named, op_class="reduction")


# --- sum and mean (NUMERICS 3.4) ------------------------------------------------------------------
def _infer_sum(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    mean = op.startswith("aten.mean")
    check_dtype(op, t, FLOATS if mean else ("f32", "i64", "bool"))
    return (TensorType("f32" if t.dtype == "f32" else "i64", _shape(op, attrs, t.shape)),)


def _run_sum(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    axes = reduced_axes(op, attrs, x.ndim)
    if x.dtype != np.float32:
        np.sum(x, axis=axes, dtype=np.int64, out=out.reshape(_kept(x, axes)))
        return
    seen, outer, n, inner = _seen(x, axes, rows=False)
    _core.reduce_sum(seen, outer, n, inner, out, False, op.startswith("aten.mean"))


def _kept(x: np.ndarray, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(x.shape) if i not in axes)


_register("aten.sum", "3.4", {}, _infer_sum, _run_sum)
_register("aten.mean", "3.4", {}, _infer_sum, _run_sum)
_register("aten.sum.dim_IntList", "3.4", _DIMS, _infer_sum, _run_sum)
_register("aten.mean.dim", "3.4", _DIMS, _infer_sum, _run_sum)


# --- extremes (NUMERICS 3.5) ----------------------------------------------------------------------
def _infer_extreme(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, NUMBERS)
    shape = _shape(op, attrs, t.shape)
    if t.numel == 0 and math.prod(shape) != 0:
        raise UsageError(f"{op}: an empty axis of {t} has no extreme (NUMERICS 3.5).")
    return (TensorType("i64" if op == "aten.argmax" else t.dtype, shape),)


def _run_extreme(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    axes, which = reduced_axes(op, attrs, x.ndim), op[-3:]
    if x.dtype != np.float32:
        function: Any = np.max if which == "max" else np.min
        if out.size:
            function(x, axis=axes, out=out.reshape(_kept(x, axes)))
        return
    seen, outer, n, inner = _seen(x, axes, rows=False)
    _core.reduce_extreme(which, seen, outer, n, inner, out)


for _name in ("aten.amax", "aten.amin"):
    _register(_name, "3.5", _DIMS, _infer_extreme, _run_extreme)
for _name in ("aten.max", "aten.min"):
    _register(_name, "3.5", {}, _infer_extreme, _run_extreme)


def _run_argmax(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if x.ndim == 0:
        out.fill(0)
        return
    axes = reduced_axes(op, attrs, x.ndim)
    if x.dtype != np.float32:
        if out.size:
            np.argmax(x, axis=axes[0], out=out.reshape(_kept(x, axes)))
        return
    seen, outer, n, _ = _seen(x, axes, rows=True)
    _core.reduce_argmax(seen, outer, n, out)


_register("aten.argmax", "3.5", _DIM, _infer_extreme, _run_argmax)


# --- variance and sum of squares (NUMERICS 3.6, 3.7) ----------------------------------------------
def _infer_var_mean(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, FLOATS)
    out = TensorType("f32", _shape(op, attrs, t.shape))
    return out, out


def _run_var_mean(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x = operand(inputs, 0)
    seen, outer, n, _ = _seen(x, reduced_axes(op, attrs, x.ndim), rows=True)
    divisor = max(float(n) - number(attrs, "correction"), 0.0)
    _core.var_mean(seen, outer, n, divisor, outputs[0], outputs[1])


_register(
    "aten.var_mean.correction",
    "3.6",
    {**_DIMS, "correction": AttrSpec("float")},
    _infer_var_mean,
    _run_var_mean,
)


def _infer_sum_squares(op: str, _attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, FLOATS)
    return (TensorType("f32", ()),)


def _run_sum_squares(_op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x = operand(inputs, 0)
    _core.reduce_sum(x, 1, x.size, 1, outputs[0], True, False)


_register("tallystick.sum_squares", "3.7", {}, _infer_sum_squares, _run_sum_squares)
