"""Experts that no row of a pass has chosen are not computed, nor the rows that have not chosen one.

A model with experts gives each of them all rows, and clears the rows that have chosen another one
twice: before its products, and behind them, by one and the same mask (`masked_fill`). So nobody
reads in between what such a row becomes, infinities and NaN included. Here the nodes in between
compute the other rows alone. Their numbers are the same bits, because a product's row is made of
that row alone.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from tallystick.devices.cpu import CPU
from tallystick.devices.device import Arrays, Outputs, Run, operand
from tallystick.kernels.evaluate import view
from tallystick.kernels.loops import pointwise_operators
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.operators.common import axis_of, integer
from tallystick.numerics.types import Attrs
from tallystick.program.ir import Node, Program, Value

_FILL = "aten.masked_fill"
_PRODUCT = "aten.mm"
# No gradient: some divide by the number of all elements, and only some of them are there.
_ELEMENTWISE = frozenset(
    {_FILL, *(s.name for s in pointwise_operators() if not s.name.endswith("_backward"))}
)


class _Chosen:
    """The rows of a pass that have chosen one expert. The first node that clears rows by its mask
    finds them, and all nodes in between run after that one."""

    def __init__(self) -> None:
        self.rows = np.empty(0, np.int64)
        self.all = False

    def find(self, mask: np.ndarray) -> None:
        cleared = mask.reshape(-1)
        self.rows = np.flatnonzero(~cleared)
        self.all = len(self.rows) == len(cleared)


def chosen_only(program: Program) -> dict[int, Run]:
    """Kernels of the nodes whose values are read in rows that a mask leaves alone."""
    masks = _masks(program)
    entries = {i: mask for i, mask in masks.items() if _clears(program, i) == mask}
    within = dict(entries)
    for index, node in enumerate(program.nodes):
        read = {within[v.node] for v in node.inputs if v is not None and v.node in within}
        if index in masks and index not in entries and read == {masks[index]}:
            within[index] = masks[index]
    kernels = CPU.kernels(parse_contract(program.contract))
    rows: dict[Value, _Chosen] = defaultdict(_Chosen)
    return {
        index: _over_rows(program, index, kernels[program.nodes[index].op].run, rows[mask],
                          first=index in entries)
        for index, mask in within.items()
        if program.nodes[index].op not in view
    }  # fmt: skip


def _masks(program: Program) -> dict[int, Value]:
    """The nodes all of whose readers, through nodes of the same kind, end at a `masked_fill` by one
    mask of rows; that mask."""
    wanted: dict[int, set[Value | None]] = defaultdict(set)
    for _, output in program.outputs:
        wanted[output.node].add(None)
    found: dict[int, Value] = {}
    for index in reversed(range(len(program.nodes))):
        node, due = program.nodes[index], wanted[index]
        (mask,) = due if len(due) == 1 and _by_row(program, node) else (None,)
        if mask is not None:
            found[index] = mask
        for at, value in enumerate(node.inputs):
            if value is not None:
                by_rows = at == 0 or node.op != _PRODUCT
                cleared = _clears(program, index) if at == 0 else None
                wanted[value.node].add(cleared or (mask if by_rows else None))
    return found


def _clears(program: Program, index: int) -> Value | None:
    """The mask of whole rows by which node `index` clears its first operand."""
    node = program.nodes[index]
    if node.op != _FILL:
        return None
    mask, shape = node.inputs[1], node.out_types[0].shape
    if mask is None or mask.is_input:
        return None
    return mask if program.type_of(mask).shape == (shape[0], *[1] * (len(shape) - 1)) else None


def _by_row(program: Program, node: Node) -> bool:
    """Whether a row of the node's value is made of the same row of its operands."""
    (out,) = node.out_types if len(node.out_types) == 1 else (None,)
    if out is None or not out.shape:
        return False
    types = [program.type_of(v) for v in node.inputs if v is not None]
    if node.op == _PRODUCT:
        return True
    if node.op == "aten.slice":
        return axis_of(node.op, integer(node.attrs, "dim"), len(out.shape)) > 0
    if node.op == "aten.view":
        return bool(types[0].shape) and types[0].shape[0] == out.shape[0]
    return node.op in _ELEMENTWISE and types[0].shape == out.shape


def _over_rows(program: Program, index: int, run: Run, chosen: _Chosen, first: bool) -> Run:
    """`run` over the chosen rows alone. The others keep what is there."""
    node = program.nodes[index]
    shape = node.out_types[0].shape
    given = [v for v in node.inputs if v is not None]
    # A product's second operand is its weight, whatever its number of rows.
    by_row = [
        at for at, v in enumerate(given)
        if (at == 0 or node.op != _PRODUCT)
        and len(program.type_of(v).shape) == len(shape) and program.type_of(v).shape[0] == shape[0]
    ]  # fmt: skip

    def kernel(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        if first:
            chosen.find(operand(inputs, 1))
        if chosen.all:
            run(attrs, inputs, outputs)
        elif len(chosen.rows):
            rows = chosen.rows
            own = [operand(inputs, at)[rows] if at in by_row else x for at, x in enumerate(inputs)]
            made = np.empty((len(rows), *outputs[0].shape[1:]), outputs[0].dtype)
            run(attrs, own, [made])
            outputs[0][rows] = made

    return kernel
