"""Calls of native/cuda/loss.cu: cross-entropy, nll_loss, squared error (NUMERICS 7)."""

from __future__ import annotations

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import launch_over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import integer
from tallystick.numerics.operators.loss import reduction_of
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import Plan, Room, launch_rows, rows, threads_of

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
def _forward(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, target, loss = operand(inputs, 0), operand(inputs, 1), outputs[0]
    (count, classes), reduction = x.shape, reduction_of(op, attrs)
    plan, room = Plan("reduce_sum", rows(1, count)), Room(x.device)
    live, losses, scratch = room.take(4), room.take(4 * count), room.take(plan.scratch)
    to = loss.address if reduction == _NONE else room.at(losses)
    shape = whole(count, classes, integer(attrs, "ignore_index"))
    if op == _CE:
        _count(op, attrs, target, classes, room.at(live))
        params = pointer(x, target) + whole(to) + pointer(*outputs[1:]) + shape
        launch_rows(x.device, "loss_cross_entropy", count, classes, params)
    else:
        _count(op, attrs, target, classes, room.at(live), outputs[1].address)
        launch_over(loss, "loss_nll", count, pointer(x, target) + whole(to) + shape)
    if reduction != _NONE:
        divisor = room.at(live) if reduction == _MEAN else 0
        plan.run(x.device, loss.address, to, scratch=room.at(scratch), divisor_at=divisor)


# --- their gradients (7.2, 7.3) -------------------------------------------------------------------
@cuda_kernel(_CE_BACKWARD, _NLL_BACKWARD, named=True, inplace=((1, 0),))
def _backward(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    g, x, target, out = (*(operand(inputs, i) for i in range(3)), outputs[0])
    (count, classes), reduction = x.shape, reduction_of(op, attrs)
    room = Room(x.device)
    live = room.at(room.take(4))
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
    plan, room = Plan("reduce_differences", rows(1, x.size)), Room(x.device)
    scratch = room.at(room.take(plan.scratch))
    divisor = x.size if reduction == _MEAN else None
    plan.run(x.device, out.address, x.address, y.address, scratch=scratch, divisor=divisor)
