"""mm, bmm and addmm as rounded operators (NUMERICS 13.3; 2.4, 2.5) over native/cuda/rounded.cu."""

from __future__ import annotations

from tallystick.contracts.rounded.cuda import rounded_kernel
from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.launch import Outputs, Tensors
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import Lines, Target, cut, last_of, lines_of, product
from tallystick.products.cuda.folds import FoldPlan, Room
from tallystick.products.cuda.marks import Rounding
from tallystick.products.operators import MATRIX_OPERATORS, matrices


@rounded_kernel(*MATRIX_OPERATORS, named=True)
def _products(op: str, how: Rounding, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    operands = matrices(op, attrs, inputs, outputs)
    out = operands.out
    if out.size == 0:
        return
    device, room = out.device, Room(out.device)
    batches, m, n, k = operands.sizes
    sides = []
    for x, axis, count in ((operands.a, -2, m), (operands.b, -1, n)):
        lines = lines_of(x, axis)
        layout, copied = lines.layout(count, k), None
        if layout is None:
            copied = room.take(x.nbytes)
            lines = lines_of(x.dense(0), axis)
            layout = lines.layout(count, k)
            assert layout is not None
        plan = FoldPlan("rounded_squares", layout)
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
        out.address, batches, m, n, k, how.bits, last_of(operands), squares[0], read[0].period, m,
        squares[1], n, marks=how.marks.get(0),
    )  # fmt: skip
    product(device, read[0], read[1], target, made, room, batches)
