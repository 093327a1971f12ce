"""Groups of nodes that the executor executes block by block, so that large values are never whole.

A value that only its group reads exists for one block of rows at a time: the score matrix of
attention for some heads, the links of an elementwise chain for some records. Kernels are called on
parts of their tensors along leading axes (kernels/parts.py), which gives the same bits.

`Group` says which nodes; grouping.py finds them. `lay_out` gives the calls of all blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tallystick.devices.device import Kernel
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program, Value
from tallystick.program.layout import TensorPlace, viewed, whole
from tallystick.program.schedule import views_of

# Bytes of a block, over all values that exist for one block only: they should stay in cache.
BLOCK = 2 << 20
# A group has at most about twice as many blocks: each costs the planner and every step their time.
_MOST = 64

Shape = tuple[int, ...]
# The first row and the one after the last, of the rows that leading axes have between them.
Rows = tuple[int, int]
# Of each leading axis, the first index and the one after the last.
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class BlockGroup:
    """Nodes executed together, over blocks of `outer`, the extents of their common leading axes.

    `members` are its own nodes; `again` are nodes of earlier groups whose values this group
    computes for itself. Neither has views.
    """

    outer: Shape
    members: frozenset[int]
    again: frozenset[int] = frozenset()

    @property
    def nodes(self) -> list[int]:
        """All nodes that a block executes, in the program's order."""
        return sorted(self.members | self.again)


class BlockPart(NamedTuple):
    """One kernel's call: node `node` over the places of its operands and results."""

    node: int
    inputs: list[TensorPlace | None]
    outputs: list[TensorPlace]


def prefix(shape: Shape, outer: Shape) -> int | None:
    """How many leading axes of `shape` cover `outer`, each one or several of its axes in one; None
    where they do not."""
    at = 0
    for axis, size in enumerate(shape):
        if at == len(outer):
            return axis
        product = 1
        while at < len(outer) and product < size:
            product *= outer[at]
            at += 1
        if product != size:
            return None
    return len(shape) if at == len(outer) else None


def box_of(rows: Rows, axes: Shape) -> Box:
    """The box with the rows `rows` of leading axes of extents `axes`. The rows are known to be a
    box."""
    low, high = rows
    inner = math.prod(axes)
    box = []
    for size in axes:
        inner //= size
        first, last = low // inner, -(-high // inner)
        box.append((first, last))
        low, high = (0, inner) if last - first > 1 else (low - first * inner, high - first * inner)
    return tuple(box)


def ranges(outer: Shape, wanted: int) -> Iterator[Rows]:
    """Ranges of rows that cover `outer`, each a box of at most `wanted` rows, but at least one."""
    inner, axis = math.prod(outer), 0
    for axis, size in enumerate(outer):  # noqa: B007
        inner //= size
        if inner <= wanted:
            break
    span = inner * outer[axis]
    count = -(-outer[axis] // max(wanted // inner, 1))
    step = -(-outer[axis] // count) * inner
    for start in range(0, math.prod(outer), span):
        for low in range(start, start + span, step):
            yield low, min(low + step, start + span)


class Whole(NamedTuple):
    """How a group finds the places of tensors that exist whole.

    `operand(value, strided)` is the place of a value made by other nodes; contiguous unless
    `strided`. `result(value)` is the place of a member's value that is kept, None for one that is
    not. `scratch(nbytes)` is a new storage that lives while the group is executed.
    """

    operand: Callable[[Value, bool], TensorPlace]
    result: Callable[[Value], TensorPlace | None]
    scratch: Callable[[int], int]


def lay_out(
    program: Program, group: BlockGroup, kernels: Mapping[str, Kernel], memory: Whole
) -> list[BlockPart]:
    """The calls of all blocks of `group`, block by block."""
    layout = _Layout(program, group, kernels, memory)
    for index in group.nodes:
        layout.add(index)
    rows = max(BLOCK // max(sum(layout.slots), 1), -(-layout.rows // _MOST))
    all_rows = list(ranges(group.outer, rows))
    most = max(high - low for low, high in all_rows)
    storages = [memory.scratch(most * size) for size in layout.slots]

    def block(place: TensorPlace, box: Box, shape: Shape, low: int) -> TensorPlace:
        place = _part(place, box, shape)
        if place.storage >= 0:
            return place
        slot = -1 - place.storage
        moved = place.offset - low * layout.slots[slot]
        return replace(place, storage=storages[slot], offset=moved)

    parts = []
    for low, high in all_rows:
        for index, inputs, outputs in layout.calls:
            shape = outputs[0].shape
            axes = prefix(shape, group.outer)
            box = box_of((low, high), shape[:axes])
            given = [None if p is None else block(p, box, shape, low) for p in inputs]
            parts.append(BlockPart(index, given, [block(p, box, p.shape, low) for p in outputs]))
    return parts


def _part(place: TensorPlace, box: Box, result: Shape) -> TensorPlace:
    """The part of an operand, or result, that the box of a result of shape `result` needs. An axis
    that the operand lacks, or of which it has one index, is not cut."""
    ahead = len(result) - len(place.shape)
    shape, offset = list(place.shape), place.offset
    for axis, (first, last) in enumerate(box):
        own = axis - ahead
        if own >= 0 and shape[own] == result[axis]:
            shape[own] = last - first
            offset += first * place.strides[own]
    return replace(place, shape=tuple(shape), offset=offset)


class _Layout:
    """The places of one group's calls, of whole tensors. What exists for one block lies in slots.

    Slot n is storage -1 - n. A place in a slot has the offset that it would have in the whole
    value; `lay_out` subtracts the rows before the block. `slots` are the bytes of a row of each.
    """

    def __init__(
        self, program: Program, group: BlockGroup, kernels: Mapping[str, Kernel], memory: Whole
    ) -> None:
        self.program = program
        self.kernels = kernels
        self.memory = memory
        self.rows = math.prod(group.outer)
        self.nodes = group.members | group.again
        self.slots: list[int] = []
        self.calls: list[BlockPart] = []
        self._free: list[int] = []
        self._own: dict[Value, TensorPlace] = {}
        self._last: dict[Value, int] = {}
        for index in group.nodes:
            for value in program.nodes[index].inputs:
                if value is not None:
                    self._last[self._own_value(value)[0]] = index

    def _own_value(self, value: Value) -> tuple[Value, list[int]]:
        """The group's own value that `value` is a view of, and the views between, first to last;
        `value` itself where another node made it."""
        root, views = views_of(self.program, value)
        return (root, views) if root.node in self.nodes else (value, [])

    def _operand(self, value: Value | None, strided: bool) -> TensorPlace | None:
        if value is None:
            return None
        root, views = self._own_value(value)
        if root.node not in self.nodes:
            return self.memory.operand(value, strided)
        place: TensorPlace | None = self._own[root]
        for index in views:
            assert place is not None, "grouping takes no view that copies"
            place = viewed(self.program.nodes[index].op, self.program.nodes[index].attrs, place)
        return place

    def add(self, index: int) -> None:
        """Give the operands and results of node `index` their places."""
        node = self.program.nodes[index]
        strided = self.kernels[node.op].strided
        inputs = [self._operand(value, strided) for value in node.inputs]
        dying = {
            value: -1 - place.storage
            for value, place in self._own.items()
            if place.storage < 0 and self._last[value] == index
        }
        outputs = []
        for out, type_ in enumerate(node.out_types):
            value = Value(index, out)
            place = self.memory.result(value) or self._taken(node.op, out, type_, inputs, dying)
            if place is None:
                place = whole(-1 - self._slot(type_.nbytes // self.rows), type_)
            self._own[value] = place
            self._last.setdefault(value, index)
            outputs.append(place)
        self.calls.append(BlockPart(index, inputs, outputs))
        unread = {
            -1 - place.storage
            for out, place in enumerate(outputs)
            if place.storage < 0 and self._last[Value(index, out)] == index
        }
        held = {-1 - place.storage for place in outputs} - unread
        self._free += sorted(({*dying.values()} | unread) - held)

    def _taken(
        self,
        op: str,
        out: int,
        type_: TensorType,
        inputs: list[TensorPlace | None],
        dying: Mapping[Value, int],
    ) -> TensorPlace | None:
        """The place of an operand that dies here and that result `out` may overwrite."""
        allowed = {at for at, to in self.kernels[op].inplace if to == out}
        for at in sorted(allowed):
            place = inputs[at] if at < len(inputs) else None
            if place is None or -1 - place.storage not in dying.values():
                continue
            sharing = {i for i, p in enumerate(inputs) if p and p.storage == place.storage}
            alike = all(inputs[i] == place for i in sharing)
            if alike and sharing <= allowed and place == whole(place.storage, type_):
                return place
        return None

    def _slot(self, rowbytes: int) -> int:
        """A slot for rows of `rowbytes`: one whose value is dead, or a new one."""
        for slot in self._free:
            if self.slots[slot] == rowbytes:
                self._free.remove(slot)
                return slot
        self.slots.append(rowbytes)
        return len(self.slots) - 1
