"""Kernels of a network's layers and losses: softmax, normalisations, max pooling, cross-entropy,
negative log-likelihood, squared error (NUMERICS 6.1 to 6.6, 6.12 to 6.16, 7), attention (18)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.contracts.ordered.cpu.movement import check_indices
from tallystick.devices.device import Arrays, Outputs, operand, optional, padded, wanted
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.common import (
    axis_of,
    flag,
    integer,
    integers,
    number,
    output_mask,
    rn32,
)
from tallystick.numerics.operators.loss import reduction_name, reduction_of
from tallystick.numerics.operators.nn import statistics_at
from tallystick.numerics.operators.pool import sides
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


def _softmax(name: str, function: Callable[..., None], count: int) -> None:
    @kernel(name, inplace=tuple((i, 0) for i in range(count)))
    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        arrays = [operand(inputs, i) for i in range(count)]
        _along(function, arrays, outputs[0], integer(attrs, "dim"))


_softmax("aten._softmax", _core.softmax, 1)
_softmax("aten._log_softmax", _core.log_softmax, 1)
_softmax("aten._softmax_backward_data", _core.softmax_backward, 2)
_softmax("aten._log_softmax_backward_data", _core.log_softmax_backward, 2)


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


# --- batch_norm (6.12 - 6.14) ---------------------------------------------------------------------
@kernel("aten._native_batch_norm_legit_functional", inplace=((0, 0),))
def _batch_norm(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, weight, bias, mean, var = padded(inputs, 5)
    momentum, eps = float(rn32(number(attrs, "momentum"))), number(attrs, "eps")
    _core.batch_norm(x, weight, bias, mean, var, momentum, eps, *padded(outputs, 5))


@kernel("aten.native_batch_norm_backward", inplace=((0, 0), (1, 0)))
def _batch_norm_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, x, weight = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2)
    mean, spread = (operand(inputs, i) for i in statistics_at(attrs))
    train, eps = flag(attrs, "train"), float(rn32(number(attrs, "eps")))
    gradients = wanted(outputs, output_mask("aten.native_batch_norm_backward", attrs))
    _core.batch_norm_backward(grad, x, weight, mean, spread, train, eps, *gradients)


@kernel("aten._native_batch_norm_legit_no_training", inplace=((0, 0),))
def _batch_norm_by_running(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, weight, bias, mean, var = padded(inputs, 5)
    eps = float(rn32(number(attrs, "eps")))
    _core.batch_norm_eval(x, weight, bias, mean, var, eps, outputs[0])


# --- max pooling (6.15, 6.16) ---------------------------------------------------------------------
@kernel("aten.max_pool2d_with_indices", named=True)
def _max_pool(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    size, stride, padding, dilation = sides(op, attrs)
    y, index = outputs
    _core.max_pool2d(operand(inputs, 0), size, stride, padding, dilation, y, index)


@kernel("aten.max_pool2d_with_indices_backward", named=True)
def _max_pool_backward(op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, index, out = operand(inputs, 0), operand(inputs, 2), outputs[0]
    check_indices(op, index, out.shape[-2] * out.shape[-1])
    _core.max_pool2d_backward(grad, index, out)


# --- cross-entropy and negative log-likelihood (7.1 - 7.3) ----------------------------------------
def _check_targets(op: str, attrs: Attrs, target: np.ndarray, classes: int) -> None:
    """Check that every target is a class or ignore_index (NUMERICS 7.1). Raises
    RefusedOperandsError."""
    # As an unsigned number, a negative one is above every class.
    if target.size == 0 or target.view(np.uint64).max() < classes:
        return
    ignored = target == integer(attrs, "ignore_index")
    bad = np.flatnonzero(((target < 0) | (target >= classes)) & ~ignored)
    if bad.size:
        raise RefusedOperandsError(
            op,
            f"target {target[bad[0]]} in row {bad[0]} is not one of {classes} classes.",
            "Mark rows to skip with ignore_index.",
        )


def _loss(op: str, function: Callable[..., None], target_at: int, **marks: Any) -> None:
    """The kernel of a loss, or of its gradient. Operand `target_at` is the targets, after x."""

    @kernel(op, **marks)
    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        x, target = operand(inputs, target_at - 1), operand(inputs, target_at)
        _check_targets(op, attrs, target, x.shape[1])
        function(*inputs, integer(attrs, "ignore_index"), reduction_of(op, attrs), *outputs)


_OF_X = ((1, 0),)  # takes the memory of x
_loss("tallystick.cross_entropy", _core.cross_entropy, 1)
_loss("tallystick.cross_entropy_backward", _core.cross_entropy_backward, 2, inplace=_OF_X)
_loss("aten.nll_loss_forward", _core.nll_loss, 1)
_loss("aten.nll_loss_backward", _core.nll_loss_backward, 2, inplace=_OF_X)


# --- squared error (7.4) --------------------------------------------------------------------------
@kernel("aten.mse_loss", named=True, strided=True)
def _mse(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, y, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    reduction = reduction_name(op, attrs)
    squares = out if reduction == "none" else np.empty(x.shape, np.float32)
    _core.ew2("mse_loss", x, y, squares)
    if reduction != "none":
        _core.reduce_sum(squares, 1, squares.size, 1, out, False, reduction == "mean")


# --- attention (18) -------------------------------------------------------------------------------
def _seen(attrs: Attrs) -> tuple[bool, int, int]:
    """Which keys there are (18.2), as the core asks for it."""
    return flag(attrs, "causal"), integer(attrs, "first"), integer(attrs, "window")


@kernel("tallystick.attention_scores")
def _scores(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    q, k, slopes = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2)
    scale, softcap = number(attrs, "scale"), number(attrs, "softcap")
    _core.attention_scores(q, k, slopes, outputs[0], scale, softcap, *_seen(attrs))


@kernel("tallystick.attention_weights", inplace=((0, 0),))
def _weights(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    s, sinks = operand(inputs, 0), optional(inputs, 1)
    _core.attention_weights(s, sinks, outputs[0], *_seen(attrs))


def _attend(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    q, k, v = (operand(inputs, i) for i in range(3))
    slopes, sinks = optional(inputs, 3), optional(inputs, 4)
    scale, softcap = number(attrs, "scale"), number(attrs, "softcap")
    _core.attention(q, k, v, slopes, sinks, outputs[0], scale, softcap, *_seen(attrs))


@kernel("tallystick.attention_values", attends=_attend)
def _values(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    p, v = operand(inputs, 0), operand(inputs, 1)
    _core.attention_values(p, v, outputs[0], *_seen(attrs))
