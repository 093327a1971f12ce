"""Calls of native/cuda/softmax.cu, norm.cu, pool.cu, loss.cu and attention.cu (NUMERICS 6.1 to 6.6,
6.12 to 6.16, 7, 18)."""

from __future__ import annotations

import math

from tallystick.contracts.ordered.cuda import cuda_kernel
from tallystick.contracts.ordered.cuda.reduction import moments
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.launch import Outputs, Tensors, f32, f64, launch_over, pointer, whole
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.device import operand, optional, padded, wanted
from tallystick.numerics.operators.common import (
    axis_of,
    flag,
    integer,
    integers,
    number,
    output_mask,
)
from tallystick.numerics.operators.loss import reduction_of
from tallystick.numerics.operators.nn import statistics_at
from tallystick.numerics.operators.pool import sides
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import (
    FoldLayout,
    FoldPlan,
    columns,
    launch_rows,
    layout,
    rows,
    threads_of,
    turned,
)


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
def _along(kernel: str, arrays: list[DeviceTensor], out: DeviceTensor, dim: int) -> None:
    """kernel(*arrays, out) over rows along `dim`, by turned copies unless `dim` is last."""
    if not out.size:
        return
    axis = axis_of("softmax", dim, out.ndim)
    n = out.shape[axis] if out.ndim else 1
    shape = whole(out.size // n, n)
    if out.ndim == 0 or math.prod(out.shape[axis + 1 :]) == 1:
        launch_rows(out.device, kernel, out.size // n, n, pointer(*arrays, out) + shape)
        return
    places = out.device.places([out.nbytes] * len(arrays))
    order = (*(a for a in range(out.ndim) if a != axis), axis)
    copies = [turned(x, order).dense(at) for x, at in zip(arrays, places, strict=True)]
    for array, made in zip(arrays, copies, strict=True):
        copy(turned(array, order), made)
    launch_rows(out.device, kernel, out.size // n, n, pointer(*copies, copies[0]) + shape)
    copy(copies[0], turned(out, order))


def _softmax(name: str, kernel: str, count: int) -> None:
    @cuda_kernel(name, inplace=tuple((i, 0) for i in range(count)))
    def run(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        arrays = [operand(inputs, i) for i in range(count)]
        _along(kernel, arrays, outputs[0], integer(attrs, "dim"))


_softmax("aten._softmax", "softmax_forward", 1)
_softmax("aten._log_softmax", "softmax_log", 1)
_softmax("aten._softmax_backward_data", "softmax_backward", 2)
_softmax("aten._log_softmax_backward_data", "softmax_log_backward", 2)


def _overlap(a: DeviceTensor, b: DeviceTensor) -> bool:
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes


# --- layer_norm (6.5, 6.6) ------------------------------------------------------------------------
@cuda_kernel("aten.native_layer_norm", inplace=((0, 0),))
def _layer_norm(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, (y, mean, rstd) = operand(inputs, 0), outputs
    n = math.prod(integers(attrs, "normalized_shape"))
    params = pointer(x, optional(inputs, 1), optional(inputs, 2), y, mean, rstd)
    params += whole(mean.size, n) + f32(number(attrs, "eps"))
    launch_rows(y.device, "norm_layer", mean.size, n, params)


@cuda_kernel("aten.native_layer_norm_backward", inplace=((0, 0), (1, 0)))
def _layer_norm_backward(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    dx, dw, db = wanted(outputs, output_mask("layer_norm", attrs))
    g, x, mean, rstd = (operand(inputs, i) for i in range(4))
    device, count, n = g.device, mean.size, math.prod(integers(attrs, "normalized_shape"))
    at = columns(1, count, n)
    plans = {"norm_row_products": dw, "reduce_sum": db}
    made = {name: FoldPlan(name, at) for name, out in plans.items() if out is not None}
    most = max((plan.scratch for plan in made.values()), default=0)
    scratch, *places = device.places([most, *[4 * n] * len(made)])
    # Only dx may share the memory of g or x. Where dw or db does, it comes to its place last.
    late: list[tuple[int, DeviceTensor]] = []
    for (name, plan), place in zip(made.items(), places, strict=True):
        out = plans[name]
        assert out is not None
        to, is_late = out.address, _overlap(out, g) or _overlap(out, x)
        if is_late:
            to = place
            late.append((to, out))
        if name == "reduce_sum":
            plan.run(device, to, g.address, scratch=scratch)
        else:
            operands = (x.address, g.address, mean.address, rstd.address)
            plan.run(device, to, *operands, scratch=scratch)
    if dx is not None:
        params = pointer(g, x, mean, rstd, optional(inputs, 4), dx) + whole(count, n)
        launch_rows(device, "norm_layer_backward", count, n, params)
    for source, out in late:
        device.driver.move(source, out.address, out.nbytes)


# --- batch_norm (6.12 - 6.14) ---------------------------------------------------------------------
def _channels(x: DeviceTensor) -> tuple[int, int, FoldLayout]:
    """Channels, elements of a plane, and the layout of a channel's elements."""
    at = layout(x.shape, [a for a in range(x.ndim) if a != 1])
    assert at is not None
    return x.shape[1], math.prod(x.shape[2:]), at


@cuda_kernel("aten._native_batch_norm_legit_functional", inplace=((0, 0),))
def _batch_norm(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, (y, mean, rstd, new_mean, new_var) = operand(inputs, 0), padded(outputs, 5)
    _, weight, bias, running_mean, running_var = padded(inputs, 5)
    channels, inner = x.shape[1], math.prod(x.shape[2:])
    at, *addresses = moments(x, tuple(a for a in range(x.ndim) if a != 1))
    params = whole(*addresses)
    params += pointer(running_mean, running_var, mean, rstd, new_mean, new_var) + whole(channels)
    params += f64(at.n, number(attrs, "eps")) + f32(number(attrs, "momentum"))
    launch_over(y, "norm_batch_statistics", channels, params)
    params = pointer(x, weight, bias, mean, rstd, y) + whole(x.size, channels, inner)
    launch_over(y, "norm_batch", x.size, params)


@cuda_kernel("aten.native_batch_norm_backward", inplace=((0, 0), (1, 0)))
def _batch_norm_backward(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    dx, dw, db = wanted(outputs, output_mask("aten.native_batch_norm_backward", attrs))
    g, x, weight = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2)
    mean, spread = (operand(inputs, i) for i in statistics_at(attrs))
    device, (channels, inner, at), train = g.device, _channels(x), flag(attrs, "train")
    needs_sums = dx is not None and train
    sums, products = FoldPlan("reduce_sum", at), FoldPlan("norm_products", at)
    most = max(sums.scratch, products.scratch)
    rstd_at, db_at, dw_at, s1, s2, r, scratch = device.places([*[4 * channels] * 6, most])
    rstd_at = spread.address if train else rstd_at
    dw_at = dw_at if dw is None else dw.address
    db_at = db_at if db is None else db.address
    if not train:
        params = pointer(spread) + whole(rstd_at, channels) + f32(number(attrs, "eps"))
        launch_over(g, "norm_running_rstd", channels, params)
    if db is not None or needs_sums:
        sums.run(device, db_at, g.address, scratch=scratch)
    if dw is not None or needs_sums:
        operands = (x.address, g.address, mean.address, rstd_at)
        products.run(device, dw_at, *operands, scratch=scratch)
    if dx is None:
        return
    params = whole(dw_at, db_at) + pointer(weight) + whole(rstd_at, s1, s2, r, channels, train)
    launch_over(g, "norm_batch_coefficients", channels, params + f32(at.n))
    params = pointer(g, x, mean) + whole(rstd_at, s1, s2, r) + pointer(dx)
    launch_over(g, "norm_batch_backward", x.size, params + whole(x.size, channels, inner, train))


@cuda_kernel("aten._native_batch_norm_legit_no_training", inplace=((0, 0),))
def _batch_norm_by_running(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, y = operand(inputs, 0), outputs[0]
    mean, var = operand(inputs, 3), operand(inputs, 4)
    channels, inner, _ = _channels(x)
    (rstd,) = y.device.places([4 * channels])
    params = pointer(var) + whole(rstd, channels) + f32(number(attrs, "eps"))
    launch_over(y, "norm_running_rstd", channels, params)
    params = pointer(x, optional(inputs, 1), optional(inputs, 2), mean) + whole(rstd)
    launch_over(y, "norm_batch", x.size, params + pointer(y) + whole(x.size, channels, inner))


# --- max pooling (6.15, 6.16) ---------------------------------------------------------------------
def _shape(op: str, attrs: Attrs, x: DeviceTensor, y: DeviceTensor) -> bytes:
    """The slots PoolShape: x is pooled to y."""
    planes = math.prod(x.shape[:-2])
    given = [number for pair in sides(op, attrs) for number in pair]
    return whole(planes, *x.shape[-2:], *y.shape[-2:], *given)


@cuda_kernel("aten.max_pool2d_with_indices", named=True)
def _max_pool(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, (y, index) = operand(inputs, 0), outputs
    params = _shape(op, attrs, x, y) + pointer(x, y, index)
    launch_over(y, "pool_forward", y.size, params)


@cuda_kernel("aten.max_pool2d_with_indices_backward", named=True)
def _max_pool_backward(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    g, index, out = operand(inputs, 0), operand(inputs, 2), outputs[0]
    if not out.size:
        return
    device, planes = out.device, math.prod(out.shape[:-2])
    (marked,) = device.places([planes])
    why = f"an index is outside [0, {out.shape[-2] * out.shape[-1]})"
    params = _shape(op, attrs, out, g) + pointer(g, index, out) + whole(marked)
    params += device.refusals.slots(op, why)
    device.launch("pool_check", (min(planes, 1 << 20), 1, 1), 256, params)
    device.refusals.after(op, why)
    launch_over(out, "pool_backward", out.size, params)


# --- losses (7.1 - 7.4) ---------------------------------------------------------------------------
_CE, _CE_BACKWARD = "tallystick.cross_entropy", "tallystick.cross_entropy_backward"
_NLL, _NLL_BACKWARD = "aten.nll_loss_forward", "aten.nll_loss_backward"
_MEAN, _NONE = 0, 2  # of reduction_of


def _count(
    op: str, attrs: Attrs, target: DeviceTensor, classes: int, count: int, count_too: int = 0
) -> None:
    """RN32 of the number of live rows, to one or two addresses; checks the targets (7.1)."""
    refusals = target.device.refusals
    why = f"a target is not one of {classes} classes; mark rows to skip with ignore_index"
    params = pointer(target) + whole(count, count_too, target.size, classes)
    params += whole(integer(attrs, "ignore_index")) + refusals.slots(op, why)
    target.device.launch("loss_count", (1, 1, 1), threads_of(target.size), params)
    refusals.after(op, why)


# --- cross_entropy (7.1), nll_loss (7.3) ----------------------------------------------------------
@cuda_kernel(_CE, _NLL, named=True)
def _losses(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, target, loss = operand(inputs, 0), operand(inputs, 1), outputs[0]
    (count, classes), reduction = x.shape, reduction_of(op, attrs)
    plan = FoldPlan("reduce_sum", rows(1, count))
    live, losses, scratch = x.device.places([4, 4 * count, plan.scratch])
    to = loss.address if reduction == _NONE else losses
    shape = whole(count, classes, integer(attrs, "ignore_index"))
    if op == _CE:
        _count(op, attrs, target, classes, live)
        params = pointer(x, target) + whole(to) + pointer(*outputs[1:]) + shape
        launch_rows(x.device, "loss_cross_entropy", count, classes, params)
    else:
        _count(op, attrs, target, classes, live, outputs[1].address)
        launch_over(loss, "loss_nll", count, pointer(x, target) + whole(to) + shape)
    if reduction != _NONE:
        divisor = live if reduction == _MEAN else 0
        plan.run(x.device, loss.address, to, scratch=scratch, divisor_at=divisor)


# --- their gradients (7.2, 7.3) -------------------------------------------------------------------
@cuda_kernel(_CE_BACKWARD, _NLL_BACKWARD, named=True, inplace=((1, 0),))
def _losses_backward(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    g, x, target, out = (*(operand(inputs, i) for i in range(3)), outputs[0])
    (count, classes), reduction = x.shape, reduction_of(op, attrs)
    (live,) = x.device.places([4])
    _count(op, attrs, target, classes, live)
    if op == _CE_BACKWARD:
        kernel, statistics = "loss_cross_entropy_backward", pointer(*inputs[3:5])
    else:
        kernel, statistics = "loss_nll_backward", whole(0, 0)
        live = operand(inputs, 3).address
    params = pointer(g, x, target) + statistics + whole(live if reduction == _MEAN else 0)
    params += pointer(out) + whole(count, classes, integer(attrs, "ignore_index"))
    launch_rows(x.device, kernel, count, classes, params + whole(reduction == _NONE))


# --- squared error (7.4); its gradient is pointwise -----------------------------------------------
@cuda_kernel("aten.mse_loss", named=True)
def _mse(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, y, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    reduction = reduction_of(op, attrs)
    if reduction == _NONE:
        params = pointer(x, y, out) + whole(x.size)
        launch_over(out, "loss_mse", x.size, params)
        return
    plan = FoldPlan("reduce_differences", rows(1, x.size))
    (scratch,) = x.device.places([plan.scratch])
    divisor = x.size if reduction == _MEAN else None
    plan.run(x.device, out.address, x.address, y.address, scratch=scratch, divisor=divisor)


# --- attention (18) -------------------------------------------------------------------------------
def _seen(attrs: Attrs, queries: int, keys: int) -> bytes:
    """An AttentionSeen (18.2)."""
    first, window = integer(attrs, "first"), integer(attrs, "window")
    return whole(flag(attrs, "causal"), first, window, queries, keys)


@cuda_kernel("tallystick.attention_scores")
def _scores(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    q, k, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    softcap = number(attrs, "softcap")
    params = pointer(q, k, optional(inputs, 2), out)
    params += whole(out.size, q.shape[1], k.shape[1], q.shape[3])
    params += _seen(attrs, q.shape[2], k.shape[2]) + f32(number(attrs, "scale"), softcap)
    launch_over(out, "attention_scores", out.size, params + whole(softcap != 0))


@cuda_kernel("tallystick.attention_weights", inplace=((0, 0),))
def _weights(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    s, out = operand(inputs, 0), outputs[0]
    batches, heads, queries, keys = s.shape
    rows = batches * heads * queries
    params = pointer(s, optional(inputs, 1), out) + whole(rows, heads)
    launch_rows(out.device, "attention_weights", rows, keys, params + _seen(attrs, queries, keys))


@cuda_kernel("tallystick.attention_values")
def _values(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    p, v, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    params = pointer(p, v, out) + whole(out.size, p.shape[1], v.shape[1], v.shape[3])
    params += _seen(attrs, p.shape[2], p.shape[3])
    launch_over(out, "attention_values", out.size, params)
