"""Calls of native/cuda/reduce.cu, scan.cu and rank.cu: sums, means, extremes, argmax, variance,
cumulative sums, places and occurrences (NUMERICS 3.4 to 3.10), clip_coef (11.6); and the fold over
micro-batches (10.12), whose additions are calls of pointwise.cu."""

from __future__ import annotations

import math

import numpy as np

from tallystick.contracts.ordered.cuda import cuda_kernel
from tallystick.contracts.ordered.cuda.pointwise import point2
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.launch import (
    Outputs,
    Tensors,
    constant_bits,
    f32,
    f64,
    launch_over,
    over,
    pointer,
    whole,
)
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.device import operand
from tallystick.numerics.operators.common import axis_of, flag, integer, number, rn32
from tallystick.numerics.operators.reduction import FOLD, fold_count, reduced_axes, split
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import FoldLayout, FoldPlan, layout, rows, turned

_GATHERED = 256  # kGathered


def seen(x: DeviceTensor, axes: tuple[int, ...]) -> tuple[FoldLayout, bool]:
    """The layout of x reduced over `axes`, and whether it is that of a turned copy of x."""
    found = layout(x.shape, axes)
    if found is not None:
        return found, False
    n = math.prod(x.shape[a] for a in axes)
    return rows(x.size // n, n), True


def turned_copy(x: DeviceTensor, axes: tuple[int, ...], address: int) -> int:
    """The address of a copy of x with the reduced axes last."""
    view = turned(x, (*(a for a in range(x.ndim) if a not in axes), *axes))
    copy(view, view.dense(address))
    return address


def fold(
    name: str,
    x: DeviceTensor,
    axes: tuple[int, ...],
    out: DeviceTensor,
    divisor: float | None = None,
) -> None:
    """out = x, C-contiguous, reduced over `axes` by the fold `name`."""
    at, is_copied = seen(x, axes)
    plan = FoldPlan(name, at)
    copied, scratch = out.device.places([x.nbytes if is_copied else 0, plan.scratch])
    source = turned_copy(x, axes, copied) if is_copied else x.address
    plan.run(out.device, out.address, source, scratch=scratch, divisor=divisor)


def moments(x: DeviceTensor, axes: tuple[int, ...]) -> tuple[FoldLayout, int, int]:
    """The layout of x reduced over `axes`; the addresses of the means and of the sums of squared
    deviations, in binary64."""
    at, is_copied = seen(x, axes)
    wide, deviations = FoldPlan("reduce_wide", at), FoldPlan("reduce_deviations", at)
    sizes = (x.nbytes if is_copied else 0, 8 * at.outputs, 8 * at.outputs)
    most = max(wide.scratch, deviations.scratch)
    copied, means, squares, scratch = x.device.places([*sizes, most])
    source = turned_copy(x, axes, copied) if is_copied else x.address
    wide.run(x.device, means, source, scratch=scratch, divisor=at.n)
    deviations.run(x.device, squares, source, a=means, scratch=scratch)
    return at, means, squares


# --- sum and mean (NUMERICS 3.4) ------------------------------------------------------------------
_SUMS = {"f32": "reduce_sum", "i64": "reduce_whole_sum", "bool": "reduce_bool_sum"}


@cuda_kernel("aten.sum", "aten.mean", "aten.sum.dim_IntList", "aten.mean.dim", named=True)
def _sum(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, axes = operand(inputs, 0), reduced_axes(op, attrs, operand(inputs, 0).ndim)
    count = math.prod(x.shape[a] for a in axes)
    fold(_SUMS[x.dtype], x, axes, outputs[0], count if op.startswith("aten.mean") else None)


# --- extremes (NUMERICS 3.5) ----------------------------------------------------------------------
@cuda_kernel("aten.amax", "aten.amin", "aten.max", "aten.min", named=True)
def _extreme(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, which = operand(inputs, 0), op[-3:]
    name = f"reduce_{which}" if x.dtype == "f32" else f"reduce_whole_{which}"
    fold(name, x, reduced_axes(op, attrs, x.ndim), outputs[0])


@cuda_kernel("aten.argmax", named=True)
def _argmax(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x = operand(inputs, 0)
    name = "reduce_place" if x.dtype == "f32" else "reduce_whole_place"
    fold(name, x, reduced_axes(op, attrs, x.ndim), outputs[0])


# --- variance and sum of squares (NUMERICS 3.6, 3.7) ----------------------------------------------
@cuda_kernel("aten.var_mean.correction", named=True)
def _var_mean(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, (var, mean) = operand(inputs, 0), outputs
    at, means, squares = moments(x, reduced_axes(op, attrs, x.ndim))
    params = whole(squares, means, var.address, mean.address, var.size)
    params += f64(max(float(at.n) - number(attrs, "correction"), 0.0))
    launch_over(var, "reduce_variance", var.size, params)


@cuda_kernel("tallystick.sum_squares")
def _sum_squares(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x = operand(inputs, 0)
    fold("reduce_squares", x, tuple(range(x.ndim)), outputs[0])


# --- clip_coef (11.6) -----------------------------------------------------------------------------
@cuda_kernel("tallystick.clip_coef")
def _clip_coef(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    coefficient, norm = outputs
    device, count = norm.device, len(inputs)
    plan = FoldPlan("reduce_sum", rows(1, count))
    squares, total, scratch = device.places([4 * count, 4, plan.scratch])
    for first in range(0, count, _GATHERED):
        given = [operand(inputs, i).address for i in range(first, min(first + _GATHERED, count))]
        params = whole(*given, *[0] * (_GATHERED - len(given)), len(given))
        params += whole(squares + 4 * first)
        device.launch("reduce_gather", (1, 1, 1), _GATHERED, params)
    plan.run(device, total, squares, scratch=scratch)
    params = whole(total, coefficient.address, norm.address)
    params += f32(number(attrs, "max_norm"))
    device.launch("reduce_clip", (1, 1, 1), 32, params)


_MOST_CHUNK = 1024  # kMostChunk of rank.cu
NARROW = 1 << 32  # rows of fewer elements have narrow entries in rank.cu


def _rows_along(op: str, attrs: Attrs, x: DeviceTensor) -> tuple[int, int, int]:
    """Rows, their elements and how many rows lie side by side, along `dim`; x has elements."""
    if not x.ndim:
        return 1, 1, 1
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    return x.size // x.shape[axis], x.shape[axis], math.prod(x.shape[axis + 1 :])


# --- cumulative sum (3.8) -------------------------------------------------------------------------
@cuda_kernel("aten.cumsum", named=True)
def _cumsum(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, y = operand(inputs, 0), outputs[0]
    if not x.size:
        return
    lines, n, inner = _rows_along(op, attrs, x)
    params = pointer(x, y) + whole(lines, n, inner)
    if inner > 1:
        launch_over(y, "scan_columns", lines, params)
    else:
        y.device.launch("scan_rows", over(lines, 128), 128, params)


# --- places (3.9) ---------------------------------------------------------------------------------
@cuda_kernel("tallystick.rank", named=True)
def _rank(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, places = operand(inputs, 0), outputs[0]
    if not x.size:
        return
    lines, n, inner = _rows_along(op, attrs, x)
    is_narrow = x.dtype == "f32" and n < NARROW
    entry, nbytes = ("narrow", 8) if is_narrow else ("broad", 16)
    chunk = min(_MOST_CHUNK, max(32, 1 << (n - 1).bit_length()))
    chunks = -(-n // chunk)
    # Entries, twice: a pass reads one and writes the other.
    source, target = x.device.places([nbytes * x.size if chunks > 1 else 0] * 2)
    params = pointer(x) + whole(source) + pointer(places) + whole(lines, n, inner, chunks)
    params += whole(flag(attrs, "descending"))
    grid = (min(lines * chunks, 1 << 20), 1, 1)
    x.device.launch(f"rank_chunks_{entry}_{x.dtype}", grid, chunk, params)
    width = chunk
    while width < n:
        is_last = 2 * width >= n
        params = whole(source, 0 if is_last else target) + pointer(places)
        params += whole(lines, n, inner, width)
        launch_over(places, f"rank_merge_{entry}", x.size, params)
        source, target, width = target, source, 2 * width


# --- occurrences (3.10) ---------------------------------------------------------------------------
@cuda_kernel("tallystick.occurrences")
def _occurrences(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    tokens, first, last = (operand(inputs, i) for i in range(3))
    counts = outputs[0]
    if not counts.size:
        return
    params = pointer(tokens, first, last, counts)
    params += whole(counts.size, integer(attrs, "classes"), tokens.size)
    launch_over(counts, "reduce_occurrences", counts.size, params)


# --- the fold over micro-batches (NUMERICS 10.12) -------------------------------------------------
_NOTHING = constant_bits(np.float32(-0.0))


@cuda_kernel(FOLD, strided=True, inplace=((0, 0),))
def _fold(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out, xs = outputs[0], [operand(inputs, i) for i in range(len(inputs))]
    if not out.size:
        return
    if len(xs) <= 2:
        _by_halves(xs, out, [])
    else:
        # Each level of the sum needs at most one partial sum beside the result.
        places = out.device.places([out.nbytes] * (len(xs) - 1).bit_length())
        _by_halves(xs, out, [out.dense(place) for place in places])
    count = fold_count(attrs, len(xs))
    if flag(attrs, "mean") and count != 1:
        point2("div", out, constant_bits(rn32(float(count))), out)


def _by_halves(xs: list[DeviceTensor], out: DeviceTensor, spare: list[DeviceTensor]) -> None:
    """The sum of `xs` by the split of COMMITMENTS 2.3; `out` may be the first one's memory."""
    if len(xs) == 1:
        point2("add", xs[0], _NOTHING, out)
        return
    half = split(len(xs))
    left, right = xs[0], xs[half]
    if half > 1:
        _by_halves(xs[:half], out, spare)
        left = out
    if len(xs) - half > 1:
        right = spare[-1]
        _by_halves(xs[half:], right, spare[:-1])
    point2("add", left, right, out)
