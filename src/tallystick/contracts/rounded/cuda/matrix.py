"""mm, bmm and addmm as rounded operators (NUMERICS 13.3; 2.4, 2.5) over native/cuda/rounded.cu."""

from __future__ import annotations

from tallystick.contracts.rounded.cuda.table import rounded_kernel
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.operands import Outputs, Tensors, operand
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.operators.common import number
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import (
    Last,
    Lines,
    Target,
    cut,
    lines_of,
    product,
    steps_of_added,
)
from tallystick.products.cuda.folds import Plan, Room
from tallystick.products.cuda.marks import Rounding


def _multiply(
    how: Rounding,
    a: DeviceTensor,
    b: DeviceTensor,
    out: DeviceTensor,
    last: Last = Last(),  # noqa: B008
) -> None:
    """out = a·b of matrices or of batches of them, of any strides."""
    if out.size == 0:
        return
    device, room = out.device, Room(out.device)
    batches, (m, k), n = out.size // (out.shape[-2] * out.shape[-1]), a.shape[-2:], b.shape[-1]
    sides = []
    for x, axis, count in ((a, -2, m), (b, -1, n)):
        lines = lines_of(x, axis)
        layout, copied = lines.layout(count, k), None
        if layout is None:
            copied = room.take(x.nbytes)
            lines = lines_of(x.dense(0), axis)
            layout = lines.layout(count, k)
            assert layout is not None
        plan = Plan("rounded_squares", layout)
        places = room.take(8 * lines.period * count), room.take(plan.scratch)
        sides.append((x, lines, plan, places, copied))
    made = cut(device, room, batches, m, n, k)
    read, squares = [], []
    for x, lines, plan, places, copied in sides:
        address = lines.address
        if copied is not None:
            address = room.at(copied)
            copy(x, x.dense(address))
        squares.append(room.at(places[0]))
        plan.run(device, squares[-1], address, scratch=room.at(places[1]))
        read.append(Lines(address, lines.line, lines.term, lines.batch, lines.period))
    target = Target(
        out.address, batches, m, n, k, how.bits, last, squares[0], read[0].period, m, squares[1], n,
        marks=how.marks.get(0),
    )  # fmt: skip
    product(device, read[0], read[1], target, made, room, batches)


@rounded_kernel("aten.mm", "aten.bmm")
def _mm(how: Rounding, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    _multiply(how, operand(inputs, 0), operand(inputs, 1), outputs[0])


@rounded_kernel("aten.addmm")
def _addmm(how: Rounding, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    c, out = operand(inputs, 0), outputs[0]
    alpha, beta = number(attrs, "alpha"), number(attrs, "beta")
    row, column = steps_of_added(c)
    last = Last(c.address, 0, row, column, alpha == 1 and beta == 1, alpha, beta)
    _multiply(how, operand(inputs, 1), operand(inputs, 2), out, last)
