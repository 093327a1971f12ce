"""Calls of native/cuda/reduce.cu: sums, means, extremes, argmax, variance (NUMERICS 3.4 - 3.7), and
clip_coef (11.6)."""

from __future__ import annotations

import math

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.launch import f32, f64, launch_over, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import number
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import Layout, Plan, Room, layout, rows, turned

_GATHERED = 256  # kGathered


def _seen(x: DeviceTensor, axes: tuple[int, ...]) -> tuple[Layout, bool]:
    """The layout of x reduced over `axes`, and whether it is that of a turned copy of x."""
    found = layout(x.shape, axes)
    if found is not None:
        return found, False
    n = math.prod(x.shape[a] for a in axes)
    return rows(x.size // n, n), True


def _copied(x: DeviceTensor, axes: tuple[int, ...], address: int) -> int:
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
    (at, is_copied), room = _seen(x, axes), Room(out.device)
    plan = Plan(name, at)
    copied, scratch = room.take(x.nbytes if is_copied else 0), room.take(plan.scratch)
    source = _copied(x, axes, room.at(copied)) if is_copied else x.address
    plan.run(out.device, out.address, source, scratch=room.at(scratch), divisor=divisor)


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
    axes, device = reduced_axes(op, attrs, x.ndim), x.device
    (at, is_copied), room = _seen(x, axes), Room(device)
    first, second = Plan("reduce_wide", at), Plan("reduce_deviations", at)
    copied = room.take(x.nbytes if is_copied else 0)
    means, squares = room.take(8 * var.size), room.take(8 * var.size)
    scratch = room.take(max(first.scratch, second.scratch))
    source = _copied(x, axes, room.at(copied)) if is_copied else x.address
    first.run(device, room.at(means), source, scratch=room.at(scratch), divisor=at.n)
    second.run(device, room.at(squares), source, a=room.at(means), scratch=room.at(scratch))
    params = whole(room.at(squares), room.at(means), var.address, mean.address, var.size)
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
    plan, room = Plan("reduce_sum", rows(1, count)), Room(device)
    squares, total, scratch = room.take(4 * count), room.take(4), room.take(plan.scratch)
    for first in range(0, count, _GATHERED):
        given = [operand(inputs, i).address for i in range(first, min(first + _GATHERED, count))]
        params = whole(*given, *[0] * (_GATHERED - len(given)), len(given))
        params += whole(room.at(squares) + 4 * first)
        device.launch("reduce_gather", (1, 1, 1), _GATHERED, params)
    plan.run(device, room.at(total), room.at(squares), scratch=room.at(scratch))
    params = whole(room.at(total), coefficient.address, norm.address)
    params += f32(number(attrs, "max_norm"))
    device.launch("reduce_clip", (1, 1, 1), 32, params)
