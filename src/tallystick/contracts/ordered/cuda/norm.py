"""Calls of native/cuda/norm.cu: layer and batch normalisation (NUMERICS 6.5, 6.6, 6.12 - 6.14)."""

from __future__ import annotations

import math

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import f32, f64, launch_over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand, optional, padded, wanted
from tallystick.numerics.operators.batch_norm import statistics_at
from tallystick.numerics.operators.common import flag, integers, number, output_mask
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import Layout, Plan, Room, columns, launch_rows, layout


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
    at, room = columns(1, count, n), Room(g.device)
    plans = {"norm_row_products": dw, "reduce_sum": db}
    made = {name: Plan(name, at) for name, out in plans.items() if out is not None}
    scratch = room.take(max((plan.scratch for plan in made.values()), default=0))
    places = {name: room.take(4 * n) for name in made}
    # Only dx may share the memory of g or x. Where dw or db does, it comes to its place last.
    late: list[tuple[int, DeviceTensor]] = []
    for name, plan in made.items():
        out = plans[name]
        assert out is not None
        to, is_late = out.address, _overlap(out, g) or _overlap(out, x)
        if is_late:
            to = room.at(places[name])
            late.append((to, out))
        if name == "reduce_sum":
            plan.run(device, to, g.address, scratch=room.at(scratch))
        else:
            operands = (x.address, g.address, mean.address, rstd.address)
            plan.run(device, to, *operands, scratch=room.at(scratch))
    if dx is not None:
        params = pointer(g, x, mean, rstd, optional(inputs, 4), dx) + whole(count, n)
        launch_rows(device, "norm_layer_backward", count, n, params)
    for source, out in late:
        device.driver.move(source, out.address, out.nbytes)


# --- batch_norm (6.12 - 6.14) ---------------------------------------------------------------------
def _channels(x: DeviceTensor) -> tuple[int, int, Layout]:
    """Channels, elements of a plane, and the layout of a channel's elements."""
    at = layout(x.shape, [a for a in range(x.ndim) if a != 1])
    assert at is not None
    return x.shape[1], math.prod(x.shape[2:]), at


@cuda_kernel("aten._native_batch_norm_legit_functional", inplace=((0, 0),))
def _training(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, (y, mean, rstd, new_mean, new_var) = operand(inputs, 0), padded(outputs, 5)
    _, weight, bias, running_mean, running_var = padded(inputs, 5)
    device, (channels, inner, at), room = x.device, _channels(x), Room(x.device)
    first, second = Plan("reduce_wide", at), Plan("reduce_deviations", at)
    means, squares = room.take(8 * channels), room.take(8 * channels)
    scratch = room.take(max(first.scratch, second.scratch))
    first.run(device, room.at(means), x.address, scratch=room.at(scratch), divisor=at.n)
    second.run(device, room.at(squares), x.address, a=room.at(means), scratch=room.at(scratch))
    params = whole(room.at(means), room.at(squares))
    params += pointer(running_mean, running_var, mean, rstd, new_mean, new_var) + whole(channels)
    params += f64(at.n, number(attrs, "eps")) + f32(number(attrs, "momentum"))
    launch_over(y, "norm_batch_statistics", channels, params)
    params = pointer(x, weight, bias, mean, rstd, y) + whole(x.size, channels, inner)
    launch_over(y, "norm_batch", x.size, params)


@cuda_kernel("aten.native_batch_norm_backward", inplace=((0, 0), (1, 0)))
def _backward(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    dx, dw, db = wanted(outputs, output_mask("aten.native_batch_norm_backward", attrs))
    g, x, weight = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2)
    mean, spread = (operand(inputs, i) for i in statistics_at(attrs))
    device, (channels, inner, at), train = g.device, _channels(x), flag(attrs, "train")
    needs_sums, room = dx is not None and train, Room(g.device)
    sums, products = Plan("reduce_sum", at), Plan("norm_products", at)
    own = [room.take(4 * channels) for _ in range(6)]
    scratch = room.take(max(sums.scratch, products.scratch))
    rstd_at, db_at, dw_at, s1, s2, r = (room.at(place) for place in own)
    rstd_at = spread.address if train else rstd_at
    dw_at = dw_at if dw is None else dw.address
    db_at = db_at if db is None else db.address
    if not train:
        params = pointer(spread) + whole(rstd_at, channels) + f32(number(attrs, "eps"))
        launch_over(g, "norm_running_rstd", channels, params)
    if db is not None or needs_sums:
        sums.run(device, db_at, g.address, scratch=room.at(scratch))
    if dw is not None or needs_sums:
        operands = (x.address, g.address, mean.address, rstd_at)
        products.run(device, dw_at, *operands, scratch=room.at(scratch))
    if dx is None:
        return
    params = whole(dw_at, db_at) + pointer(weight) + whole(rstd_at, s1, s2, r, channels, train)
    launch_over(g, "norm_batch_coefficients", channels, params + f32(at.n))
    params = pointer(g, x, mean) + whole(rstd_at, s1, s2, r) + pointer(dx)
    launch_over(g, "norm_batch_backward", x.size, params + whole(x.size, channels, inner, train))


@cuda_kernel("aten._native_batch_norm_legit_no_training", inplace=((0, 0),))
def _by_running(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, y = operand(inputs, 0), outputs[0]
    mean, var = operand(inputs, 3), operand(inputs, 4)
    channels, inner, _ = _channels(x)
    room = Room(y.device)
    rstd = room.take(4 * channels)
    params = pointer(var) + whole(room.at(rstd), channels) + f32(number(attrs, "eps"))
    launch_over(y, "norm_running_rstd", channels, params)
    params = pointer(x, optional(inputs, 1), optional(inputs, 2), mean) + whole(room.at(rstd))
    launch_over(y, "norm_batch", x.size, params + pointer(y) + whole(x.size, channels, inner))
