"""Kernels of sums, means, extremes, argmax and variance (NUMERICS 3)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import axis_of, integer, number, rn32
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs


def extents(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(outer, n, inner) if the reduced axes are neighbours, axes of one element aside; else
    None."""
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


# --- sum and mean (NUMERICS 3.4) ------------------------------------------------------------------
@kernel("aten.sum", "aten.mean", "aten.sum.dim_IntList", "aten.mean.dim", named=True)
def _sum(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    axes = reduced_axes(op, attrs, x.ndim)
    if x.dtype != np.float32:
        np.sum(x, axis=axes, dtype=np.int64, out=out.reshape(_kept(x, axes)))
        return
    seen, outer, n, inner = _seen(x, axes, rows=False)
    _core.reduce_sum(seen, outer, n, inner, out, False, op.startswith("aten.mean"))


def _kept(x: np.ndarray, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(x.shape) if i not in axes)


# --- extremes (NUMERICS 3.5) ----------------------------------------------------------------------
@kernel("aten.amax", "aten.amin", "aten.max", "aten.min", named=True)
def _extreme(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    axes, which = reduced_axes(op, attrs, x.ndim), op[-3:]
    if x.dtype != np.float32:
        function: Any = np.max if which == "max" else np.min
        if out.size:
            function(x, axis=axes, out=out.reshape(_kept(x, axes)))
        return
    seen, outer, n, inner = _seen(x, axes, rows=False)
    _core.reduce_extreme(which, seen, outer, n, inner, out)


@kernel("aten.argmax", named=True)
def _argmax(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
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


# --- variance and sum of squares (NUMERICS 3.6, 3.7) ----------------------------------------------
@kernel("aten.var_mean.correction", named=True)
def _var_mean(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x = operand(inputs, 0)
    seen, outer, n, _ = _seen(x, reduced_axes(op, attrs, x.ndim), rows=True)
    divisor = max(float(n) - number(attrs, "correction"), 0.0)
    _core.var_mean(seen, outer, n, divisor, outputs[0], outputs[1])


@kernel("tallystick.sum_squares", named=True)
def _sum_squares(_op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x = operand(inputs, 0)
    _core.reduce_sum(x, 1, x.size, 1, outputs[0], True, False)


# --- cumulative sum (NUMERICS 3.8) ----------------------------------------------------------------
@kernel("aten.cumsum", named=True, strided=True)
def _cumsum(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    if x.ndim == 0:
        x, out = x.reshape(1), out.reshape(1)
    with np.errstate(all="ignore"):
        np.add.accumulate(x, axis=axis, out=out)  # one addition after the other, as in 3.8
    out[np.isnan(out)] = rn32(math.nan)
