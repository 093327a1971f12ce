"""One pass over the weights, for rows of many sequences at once. Experts that no row has chosen are
not computed, nor the rows that have not chosen one.

A model with experts gives each of them all rows, and clears the rows that have chosen another one
twice: before its products, and behind them, by one and the same mask (`masked_fill`). So nobody
reads in between what such a row becomes, infinities and NaN included. Here the nodes in between
compute the other rows alone. Their numbers are the same bits, because a product's row is made of
that row alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tallystick.closing import made_once
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Arrays, Outputs, Run, operand
from tallystick.errors import UsageError
from tallystick.generation.attention import PagedAttention, Rows, layer_shape
from tallystick.generation.cut import LOGITS, ProgramParts, attentions, cut
from tallystick.generation.network import Network
from tallystick.generation.panels import Panels, prepared
from tallystick.kernels.evaluate import view
from tallystick.kernels.loops import pointwise_operators
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.operators.common import axis_of, integer
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.executor import Executor
from tallystick.program.ir import Node, Program, Value
from tallystick.program.runner import StepInputs

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


def rows_of_program(rows: int) -> int:
    """The number of rows of the program that computes `rows`: a power of two, or three quarters of
    one that is no small one. More numbers would take more programs."""
    size = 1 << max(0, rows - 1).bit_length()
    return size * 3 // 4 if size >= 32 and rows <= size * 3 // 4 else size


class Forward:
    """Computes rows, with keys and values in as many pages as `memory` bytes have room for.

    A program is made for a number of rows when it is first needed, its memory is planned once, and
    all of them are bound to the same weights. Raises UsageError where there is no room for a page.
    """

    def __init__(self, network: Network, context: ExecutionContext, memory: int) -> None:
        self._network, self._context = network, context
        self._weights, self._panels = network.weights(), Panels()
        first = self._cut(1)
        shapes = [layer_shape(first.body, layer) for layer in attentions(first.body)]
        each = sum(4 * shape.page_floats for shape in shapes)
        self.pages = memory // each
        if self.pages < 1:
            raise UsageError(
                f"{memory} bytes have no room for a page of keys and values, which has {each}.",
                f"Give the engine more memory, at least {each} bytes.",
            )
        self._pools = [shape.pool(self.pages) for shape in shapes]
        windows = [shape.window for shape in shapes]
        # The most places that a row of any layer reads, 0 if it may read all.
        self.window = max(windows) if all(windows) else 0

    # -- programs ----------------------------------------------------------------------------------

    @made_once
    def _cut(self, rows: int) -> ProgramParts:
        return cut(self._network.program(rows))

    @made_once
    def _state(self, rows: int) -> dict[str, Any]:
        """The weights, and what they alone decide."""
        fixed = self._cut(rows).fixed
        if not fixed.outputs:
            return dict(self._weights)
        read = {name: self._weights[name] for name in fixed.state_types}
        found = Executor(fixed, self._context).execute(read, StepInputs({})).outputs
        return {**self._weights, **found}

    @made_once
    def _head(self, rows: int) -> Executor:
        return self._executor(self._cut(rows).head, {})

    @made_once
    def _body(self, rows: int) -> tuple[Executor, list[PagedAttention]]:
        program = self._cut(rows).body
        layers = [
            PagedAttention(program, layer, pool)
            for layer, pool in zip(attentions(program), self._pools, strict=True)
        ]
        own = {index: run for layer in layers for index, run in layer.by_node().items()}
        return self._executor(program, own), layers

    def _executor(self, program: Program, own: Mapping[int, Run]) -> Executor:
        contract = parse_contract(program.contract)
        own = {**chosen_only(program), **own}
        panels = self._panels  # the executor holds the hook, which must not hold this object

        def hook(index: int, _node: Node, _spec: OpSpec) -> Run | None:
            return (
                own.get(index)
                or panels.product(program, index, contract)
                or prepared(program, index, contract)
            )

        return Executor(program, self._context, hook, narrow=True)

    # -- a pass ------------------------------------------------------------------------------------

    def logits(self, tokens: Sequence[int], rows: Rows, wanted: Sequence[int]) -> np.ndarray:
        """The logits of the rows `wanted`, f32[len(wanted), vocabulary], after the keys and values
        of all rows have gone to their pages. Rows that fill up a program are thrown away."""
        size = rows_of_program(rows.count)
        executor, layers = self._body(size)
        batch = {"token": np.zeros((size, 1), np.int64), "place": np.zeros((size, 1), np.int64)}
        batch["token"][: rows.count, 0] = tokens
        batch["place"][: rows.count, 0] = rows.places
        for layer in layers:
            layer.rows = rows
        body = executor.execute(self._state(size), StepInputs(_read(executor, batch))).outputs
        if not wanted:
            return np.empty((0, self._network.vocabulary), np.float32)
        chosen = np.zeros(rows_of_program(len(wanted)), np.int64)
        chosen[: len(wanted)] = wanted
        head = self._head(len(chosen))
        given = {name: array[chosen] for name, array in batch.items()}
        for name, value in body.items():
            if name in self._by_row:
                value = value.reshape(size, -1)[chosen]
            given[name] = value.reshape(head.program.batch_types[name].shape)
        found = head.execute(self._state(len(chosen)), StepInputs(_read(head, given))).outputs[
            LOGITS
        ]
        return found[: len(wanted)]

    @cached_property
    def _by_row(self) -> frozenset[str]:
        """The values from the body to the head that have a part for each row, in the order of the
        rows. Raises UsageError where the parts are not one after the other."""
        found = set()
        one, two = (self._cut(rows).body for rows in (1, 2))
        for name, value in one.outputs:
            shapes = one.type_of(value).shape, two.type_of(two.output_values[name]).shape
            axis = next((i for i, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b), None)
            if axis is None:
                continue
            if math.prod(shapes[0][:axis]) != 1:
                raise UsageError("The rows of this program's last layer do not lie apart.")
            found.add(name)
        return frozenset(found)


def _read(executor: Executor, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of `batch` that the executor's program reads."""
    return {name: batch[name] for name in executor.program.batch_types}
