"""Kernels that add up or reduce: matrix products and 2-D convolutions (NUMERICS 2), with the
quantised weights that products read in their place (19); sums, means, extremes, variance,
cumulative sums, places in a row's order, and the fold over micro-batches (3, 10.12).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.device import Arrays, Outputs, operand
from tallystick.numerics.operators.common import axis_of, flag, integer, number, rn32, text
from tallystick.numerics.operators.quantised import block_format
from tallystick.numerics.operators.reduction import FOLD, fold_count, reduced_axes, split
from tallystick.numerics.types import Attrs
from tallystick.products.operators import CONVOLUTION_OPERATORS, Convolution, convolutions


def rows_of(b: np.ndarray) -> np.ndarray:
    """The bytes of a weight in blocks, a row for each column of the matrix `b`."""
    rows: np.ndarray = b.T.view(np.uint8)
    return rows


# A small model's step makes hundreds of these calls, so each goes straight to the core.
@kernel("aten.mm", strided=True, widens=(1,))
def _mm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    a, b = operand(inputs, 0), operand(inputs, 1)
    if b.dtype == np.float32:
        _core.mm(a, b, outputs[0])
    elif format_ := block_format(b.dtype):
        _core.mm_quantised(format_, a, rows_of(b), outputs[0])
    else:  # a weight as it is stored
        _core.mm_stored(a, b.view(np.uint16), outputs[0], b.dtype == np.float16)


@kernel("aten.bmm", strided=True)
def _bmm(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.bmm(operand(inputs, 0), operand(inputs, 1), outputs[0])


@kernel("aten.addmm", strided=True, widens=(2,))
def _addmm(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    c, a, b = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    beta, alpha = number(attrs, "beta"), number(attrs, "alpha")
    if b.dtype == np.float32:
        _core.addmm(c, a, b, outputs[0], beta, alpha)
    elif format_ := block_format(b.dtype):
        _core.addmm_quantised(format_, c, a, rows_of(b), outputs[0], beta, alpha)
    else:
        is_f16 = b.dtype == np.float16
        _core.addmm_stored(c, a, b.view(np.uint16), outputs[0], beta, alpha, is_f16)


@kernel(*CONVOLUTION_OPERATORS, named=True)
def _convolutions(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    for conv in convolutions(op, attrs, inputs, outputs):
        convolve(conv)


def convolve(conv: Convolution[np.ndarray]) -> None:
    """Compute `conv.out`, and for y with the bias."""
    if conv.makes == "y":
        _core.convolution(conv.x, conv.weight, conv.bias, conv.out, *conv.form)
    elif conv.makes == "x":
        _core.convolution_input_grad(conv.y, conv.weight, conv.out, *conv.form)
    elif conv.makes == "weight":
        _core.convolution_weight_grad(conv.y, conv.x, conv.out, *conv.form)
    else:
        _core.convolution_bias_grad(conv.y, conv.out)


@kernel("tallystick.dequantize")
def _dequantize(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.dequantize(text(attrs, "format"), operand(inputs, 0), outputs[0])


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


# --- places in a row's order (NUMERICS 3.9) -------------------------------------------------------
_INFINITY, _MAGNITUDE = np.int32(0x7F800000), np.int32(0x7FFFFFFF)
_LOW_WORD = (1 << 32) - 1


def _keys(x: np.ndarray) -> np.ndarray:
    """Integers in the order of the numbers: one zero, and one NaN above all (3.9)."""
    if x.dtype != np.float32:
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
    order = _stable_order(keys)
    places = np.empty(order.shape, np.int64)
    along = np.broadcast_to(np.arange(order.shape[-1]), order.shape)
    np.put_along_axis(places, order, along, -1)
    out[...] = np.moveaxis(places, -1, axis)


def _stable_order(keys: np.ndarray) -> np.ndarray:
    """The indices of a stable sort of each row."""
    if keys.dtype != np.int32 or keys.shape[-1] > _LOW_WORD:
        return np.argsort(keys, axis=-1, kind="stable")
    # A key with its index below it is one number, and no two are equal: any sort of them is the
    # stable one, and numpy's of numbers takes a tenth of the time of its stable argsort.
    packed = keys.astype(np.int64) << 32
    packed |= np.arange(keys.shape[-1])
    packed.sort(axis=-1)
    packed &= _LOW_WORD
    return packed


# --- occurrences (NUMERICS 3.10) -----------------------------------------------------------------
@kernel("tallystick.occurrences", strided=True)
def _occurrences(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    tokens, first, last = (operand(inputs, i) for i in range(3))
    classes = integer(attrs, "classes")
    is_class = (tokens >= 0) & (tokens < classes)
    for row, start, end in zip(outputs[0], first, last, strict=True):
        here = slice(max(int(start), 0), max(int(end) + 1, 0))
        row[...] = np.bincount(tokens[here][is_class[here]], minlength=classes)


# --- the fold over micro-batches (NUMERICS 10.12) -------------------------------------------------
# Elements that are added up at a time: the partial sums of all levels stay in cache.
_STRETCH = 1 << 16
# x + −0 is x for every x that is no NaN (NUMERICS 3.2), and the canonical NaN for a NaN.
_NOTHING = np.float32(-0.0).reshape(())


@kernel(FOLD, strided=True, inplace=((0, 0),))
def _fold(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    out, xs = outputs[0], [operand(inputs, i) for i in range(len(inputs))]
    if len(xs) <= 2:
        _by_halves(xs, out)
    else:
        rows, flat = [x.reshape(-1) for x in xs], out.reshape(-1)
        for first in range(0, flat.size, _STRETCH):
            here = slice(first, first + _STRETCH)
            _by_halves([x[here] for x in rows], flat[here])
    count = fold_count(attrs, len(xs))
    if flag(attrs, "mean") and count != 1:
        _core.ew2("div", out, np.float32(count).reshape(()), out)


def _by_halves(xs: list[np.ndarray], out: np.ndarray) -> None:
    """The sum of `xs` by the split of COMMITMENTS 2.3; `out` may be the first one's memory."""
    if len(xs) == 1:
        _core.ew2("add", xs[0], _NOTHING, out)
        return
    half = split(len(xs))
    left, right = xs[0], xs[half]
    if half > 1:
        _by_halves(xs[:half], out)
        left = out
    if len(xs) - half > 1:
        right = np.empty_like(out)
        _by_halves(xs[half:], right)
    _core.ew2("add", left, right, out)
