"""The static memory plan of a program: order, layouts, lifetimes, offsets in one arena.

Shapes are fixed, so the planner decides everything once. Views share storage. Where the operator
allows it, an output takes over the storage of an operand that dies. A kernel writes a next-state
value straight into its state array when no node will read the old value again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tallystick.devices.cpu import CPU
from tallystick.devices.device import ALIGNMENT as ALIGNMENT
from tallystick.devices.device import Device, Kernel
from tallystick.errors import UnsupportedOperatorError
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.operators.quantised import DEQUANTIZE
from tallystick.numerics.types import STORED, TensorType
from tallystick.program.blocks import BlockGroup, BlockPart, Whole, lay_out
from tallystick.program.fused import Attention, closed, narrow, operands
from tallystick.program.grouping import Grouping, Item
from tallystick.program.ir import COMMIT, Node, Program, Value, op_spec
from tallystick.program.layout import TensorPlace, in_blocks, viewed, whole
from tallystick.program.schedule import execution_order


@dataclass(frozen=True)
class Span:
    """A buffer of `nbytes`, live in the execution positions first..last inclusive."""

    nbytes: int
    first: int
    last: int


def pack(spans: Sequence[Span]) -> tuple[list[int], int]:
    """An offset for each span, such that spans alive together do not overlap; and the total size.

    The function places the largest span first, and each into the tightest gap that is free for its
    whole life. Offsets are multiples of `ALIGNMENT`.
    """
    sizes = np.array([-(-s.nbytes // ALIGNMENT) * ALIGNMENT for s in spans], dtype=np.int64)
    first = np.array([s.first for s in spans], dtype=np.int64)
    last = np.array([s.last for s in spans], dtype=np.int64)
    order = sorted(range(len(spans)), key=lambda i: (-int(sizes[i]), int(first[i])))
    first, last = first[order], last[order]
    placed = np.zeros(len(spans), dtype=np.int64)
    sorted_sizes = sizes[order] if len(spans) else sizes
    for i in range(len(spans)):
        alive = (first[:i] <= last[i]) & (last[:i] >= first[i])
        placed[i] = _tightest(placed[:i][alive], sorted_sizes[:i][alive], int(sorted_sizes[i]))
    offsets = [0] * len(spans)
    for i, original in enumerate(order):
        offsets[original] = int(placed[i])
    total = int((placed + sorted_sizes).max()) if len(spans) else 0
    return offsets, total


def _tightest(starts: np.ndarray, sizes: np.ndarray, wanted: int) -> int:
    """The offset of the smallest gap of at least `wanted` bytes, or the end of all buffers."""
    if wanted == 0 or not starts.size:
        return 0
    by_start = np.argsort(starts, kind="stable")
    starts, ends = starts[by_start], (starts + sizes)[by_start]
    reached = np.concatenate(([0], np.maximum.accumulate(ends)))
    gaps = starts - reached[:-1]
    fits = np.flatnonzero(gaps >= wanted)
    if not fits.size:
        return int(reached[-1])
    return int(reached[:-1][fits[np.argmin(gaps[fits])]])


def lower_bound(spans: Sequence[Span]) -> int:
    """The bytes alive at the worst position. No packing needs fewer (before alignment)."""
    if not spans:
        return 0
    change = np.zeros(max(s.last for s in spans) + 2, dtype=np.int64)
    for span in spans:
        change[span.first] += span.nbytes
        change[span.last + 1] -= span.nbytes
    return int(np.cumsum(change).max())


# The commit node computes nothing: the values that it names exist already (NUMERICS 12.1).
COMMIT_KERNEL = Kernel(lambda _attrs, _inputs, _outputs: None, strided=True)
# The executor computes values that depend on no input once. Large ones are cheaper to make again.
CONSTANT_BYTES = 4 << 20


@dataclass
class Storage:
    """A piece of memory: in the arena, a state array, a staged input, or a constant."""

    kind: str  # "arena", "state", "staged", "constant"
    nbytes: int
    name: str = ""
    first: int = -1
    last: int = -1
    offset: int = 0


@dataclass
class PlanStep:
    """The work at one position: copies into scratch, then the kernel (None for a view).

    A group of nodes (blocks.py) has `parts` instead of one kernel's call: the calls of its blocks,
    in order. `inputs` and `outputs` are then those of the whole group, `index` is its last node.
    The last node of an `attention` that is one call (fused.py) has the operands of all three.
    """

    index: int
    copies: list[tuple[TensorPlace, TensorPlace]] = field(default_factory=list)
    inputs: list[TensorPlace | None] = field(default_factory=list)
    outputs: list[TensorPlace] = field(default_factory=list)
    runs: bool = True
    writes_state: bool = False
    parts: list[BlockPart] = field(default_factory=list)
    attention: Attention | None = None


@dataclass
class Plan:
    """The plan. `steps` are in execution order; `constants` run once, when memory is bound.

    `state_copies` are the (slot, place) pairs that remain to be copied into state arrays after the
    last step. `results` are the places of the outputs that are not state.
    """

    storages: list[Storage]
    constants: list[PlanStep]
    steps: list[PlanStep]
    results: dict[str, TensorPlace]
    state_copies: list[tuple[str, TensorPlace]]
    arena_bytes: int
    arena_lower_bound: int


@dataclass(frozen=True)
class PlanOptions:
    """Without `reuse` every operand stays intact until its node has ended (for taps). Without
    `blocks` every node is executed by itself, on whole tensors, attention's three too. Without
    `narrow` every conversion of a stored weight has memory of its own (fused.py)."""

    reuse: bool = True
    hoist: bool = True
    fold_constants: bool = True
    blocks: bool = True
    narrow: bool = True


class _Planner:
    def __init__(
        self, program: Program, options: PlanOptions, kernels: Mapping[str, Kernel]
    ) -> None:
        self.program = program
        self.kernels = kernels
        self.options = options
        order = execution_order(program, options.hoist)
        self.storages: list[Storage] = []
        self.places: dict[Value, TensorPlace] = {}
        self.constant = self._constant_nodes() if options.fold_constants else set()
        self.narrow = narrow(program, kernels) if options.narrow else set()
        self.schedule: list[Item] = [*order]
        self.kept: set[Value] = set()
        self.attention = closed(program, kernels, self.constant) if options.blocks else {}
        if options.blocks:
            lasting = self.constant | self.narrow
            grouping = Grouping(program, order, kernels, lasting, self.attention)
            self.schedule, self.kept = grouping.schedule(), grouping.kept()
        self.end = len(self.schedule)
        self.into: list[int] = []

    def kernel(self, op: str) -> Kernel:
        """The kernel that runs `op`, which is no view."""
        return COMMIT_KERNEL if op == COMMIT else self.kernels[op]

    def inplace(self, step: PlanStep) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs of a step's kernel that may share storage."""
        op = self.program.nodes[step.index].op
        return () if op in view or step.parts else self.kernel(op).inplace

    def _constant_nodes(self) -> set[int]:
        found: set[int] = set()
        for index, node in enumerate(self.program.nodes):
            inputs = [v for v in node.inputs if v is not None]
            small = sum(t.nbytes for t in node.out_types) <= CONSTANT_BYTES
            fixed = all(not v.is_input and v.node in found for v in inputs)
            if fixed and small and node.op != COMMIT and not op_spec(node.op).is_random:
                found.add(index)
        return found

    def _new(self, kind: str, type_: TensorType, position: int, name: str = "") -> TensorPlace:
        self.storages.append(Storage(kind, type_.nbytes, name, position, position))
        return whole(len(self.storages) - 1, type_)

    # -- the last position at which each value is read ---------------------------------------

    def layouts(self) -> list[PlanStep]:
        """Give every value a place, as if nothing shared storage but views."""
        for i, spec in enumerate(self.program.inputs):
            kind = "state" if spec.kind == "state" else "staged"
            self.places[Value(-1, i)] = self._new(kind, spec.type, -1, spec.name)
        return [
            self._layout(position, item, self.program.nodes[item])
            if isinstance(item, int)
            else self._layout_group(position, item)
            for position, item in enumerate(self.schedule)
        ]

    def _layout(self, position: int, index: int, node: Node) -> PlanStep:
        step = PlanStep(index)
        inputs: Sequence[Value | None] = node.inputs
        attention = self.attention.get(index)
        if attention is not None:
            if index != attention.values:  # the last node computes all three
                step.runs = False
                return step
            step.attention, inputs = attention, operands(self.program, attention)
        places = [None if v is None else self.places[v] for v in inputs]
        kind = "constant" if index in self.constant else "arena"
        if node.op in view and places and places[0] is not None:
            step.runs = False
            source = places[0]
            result = viewed(node.op, node.attrs, source)
            if result is None:
                copy = self._copy(step, source, kind, position)
                result = viewed(node.op, node.attrs, copy)
                assert result is not None, "every view of contiguous memory is a view"
            step.inputs, step.outputs = [source], [result]
        elif index in self.narrow:  # what reads it reads the stored weight
            assert places[0] is not None
            step.runs = False
            step.inputs, step.outputs = [places[0]], [self._as_read(node, places[0])]
        else:
            strided = self.kernel(node.op).strided
            for place in places:
                if place is not None and not strided and not place.is_contiguous:
                    place = self._copy(step, place, kind, position)
                step.inputs.append(place)
            step.outputs = [self._new(kind, t, position) for t in node.out_types]
        for out, place in enumerate(step.outputs):
            self.places[Value(index, out)] = place
        return step

    def _as_read(self, node: Node, place: TensorPlace) -> TensorPlace:
        """The stored weight of a spared conversion, as the products take it."""
        if node.op != DEQUANTIZE:
            return place
        format_ = node.attrs["format"]
        assert isinstance(format_, str)
        return in_blocks(place, format_)

    def _layout_group(self, position: int, group: BlockGroup) -> PlanStep:
        """One step for all blocks of `group`: its operands and kept results whole, all else of a
        block's size."""
        step = PlanStep(group.nodes[-1])

        def operand(value: Value, strided: bool) -> TensorPlace:
            place = self.places[value]
            if not strided and not place.is_contiguous:
                place = self._copy(step, place, "arena", position)
            step.inputs.append(place)
            return place

        def result(value: Value) -> TensorPlace | None:
            if value.node not in group.members or value not in self.kept:
                return None
            self.places[value] = self._new("arena", self.program.type_of(value), position)
            step.outputs.append(self.places[value])
            return self.places[value]

        def scratch(nbytes: int) -> int:
            self.storages.append(Storage("arena", nbytes, "", position, position))
            return len(self.storages) - 1

        memory = Whole(operand, result, scratch)
        step.parts = lay_out(self.program, group, self.kernels, memory)
        return step

    def _copy(self, step: PlanStep, source: TensorPlace, kind: str, position: int) -> TensorPlace:
        copy = self._new(kind, TensorType(source.dtype, source.shape), position)
        step.copies.append((source, copy))
        return copy

    def lifetimes(self, steps: Iterable[PlanStep]) -> None:
        """Set the last position at which each storage is read. The end of the step reads the
        outputs."""
        for position, step in enumerate(steps):
            # A view moves nothing: its storage is read when the view's readers read it.
            read = [*step.inputs] if step.runs else []
            for place in [*read, *step.outputs, *(p for pair in step.copies for p in pair)]:
                if place is not None:
                    storage = self.storages[place.storage]
                    storage.last = max(storage.last, position)
        passed = self.program.passed_through
        for name, value in self.program.outputs:
            if name not in passed:
                self.storages[self.places[value].storage].last = self.end

    # -- sharing -----------------------------------------------------------------------------

    def find(self, storage: int) -> int:
        """The storage that `storage` was merged into."""
        while self.into[storage] != storage:
            storage = self.into[storage]
        return storage

    def donate(self, steps: list[PlanStep]) -> list[tuple[str, TensorPlace]]:
        """Place next-state values in their state arrays; return those that must be copied."""
        passed = self.program.passed_through
        position_of = {
            step.index: position for position, step in enumerate(steps) if not step.parts
        }
        copies: list[tuple[str, TensorPlace]] = []
        for slot, value in self.program.next_state.items():
            if slot in passed:
                continue
            old = self.places[Value(-1, self.program.input_index[slot])]
            at = position_of.get(value.node) if self.options.reuse else None
            if at is not None and self._take_over(steps[at], value.out, old, at):
                steps[at].writes_state = True
                continue
            copies.append((slot, self.places[value]))
        return copies

    def reuse(self, steps: list[PlanStep]) -> None:
        """Place outputs in the storage of operands that die at their node."""
        for position, step in enumerate(steps):
            for slot, out in self.inplace(step):
                if slot >= len(step.inputs) or out >= len(step.outputs):
                    continue
                old = step.inputs[slot]
                if old is None or self.storages[self.find(old.storage)].kind != "arena":
                    continue
                self._take_over(step, out, old, position)

    def _take_over(self, step: PlanStep, out: int, old: TensorPlace, position: int) -> bool:
        """Merge the storage of output `out` into that of `old` if the two fit and no node needs
        the old value afterwards."""
        made, target = step.outputs[out], self.find(old.storage)
        if not step.runs or self.storages[made.storage].kind != "arena":
            return False
        if self.find(made.storage) != made.storage or not old.is_contiguous or old.offset != 0:
            return False
        if (made.dtype, made.shape) != (old.dtype, old.shape):
            return False
        storage = self.storages[target]
        if storage.last > position or storage.nbytes != self.storages[made.storage].nbytes:
            return False
        if any(self.find(o.storage) == target for o in step.outputs):
            return False
        inplace = self.inplace(step)
        for slot, place in enumerate(step.inputs):
            if place is None or self.find(place.storage) != target:
                continue
            same = (place.offset, place.shape, place.strides) == (0, old.shape, old.strides)
            if not same or (slot, out) not in inplace:
                return False
        self.into[made.storage] = target
        storage.last = max(storage.last, self.storages[made.storage].last)
        return True

    # -- the result --------------------------------------------------------------------------

    def settle(self, place: TensorPlace | None) -> TensorPlace | None:
        if place is None:
            return None
        storage = self.find(place.storage)
        if storage == place.storage:
            return place
        return TensorPlace(storage, place.offset, place.dtype, place.shape, place.strides)

    def settled(self, place: TensorPlace) -> TensorPlace:
        result = self.settle(place)
        assert result is not None
        return result

    def plan(self) -> Plan:
        steps = self.layouts()
        self.into = list(range(len(self.storages)))
        self.lifetimes(steps)
        state_copies = self.donate(steps)
        if self.options.reuse:
            self.reuse(steps)
        for step in steps:
            step.inputs = [self.settle(p) for p in step.inputs]
            step.outputs = [self.settled(p) for p in step.outputs]
            step.copies = [(self.settled(a), self.settled(b)) for a, b in step.copies]
            step.parts = [
                BlockPart(
                    p.node, [self.settle(i) for i in p.inputs], [*map(self.settled, p.outputs)]
                )
                for p in step.parts
            ]
        arena = [
            storage
            for i, storage in enumerate(self.storages)
            if storage.kind == "arena" and self.find(i) == i
        ]
        spans = [Span(s.nbytes, s.first, s.last) for s in arena]
        offsets, total = pack(spans)
        for storage, offset in zip(arena, offsets, strict=True):
            storage.offset = offset
        return Plan(
            self.storages,
            [step for step in steps if step.index in self.constant],
            [step for step in steps if step.index not in self.constant],
            {
                name: self.settled(self.places[value])
                for name, value in self.program.outputs
                if name not in self.program.next_state
            },
            [(slot, self.settled(place)) for slot, place in state_copies],
            total,
            lower_bound(spans),
        )


def make_plan(program: Program, options: PlanOptions | None = None, device: Device = CPU) -> Plan:
    """The memory plan of `program` on `device`: a function of the three arguments alone.

    Raises UnsupportedOperatorError, which names all operators that have no kernel there, or a slot
    of a stored type on a GPU.
    """
    kernels = device.kernels(parse_contract(program.contract))
    named = {node.op for node in program.nodes} - {COMMIT}
    missing = sorted(op for op in named if op not in view and op not in kernels)
    stored = sorted(n for n, t in program.state_types.items() if t.dtype in STORED)
    if stored and device.kind != CPU.kind:
        raise UnsupportedOperatorError(
            f"Slot {stored[0]} is {program.state_types[stored[0]].dtype}, which {device.name} "
            "does not support.",
            "Execute the program on the CPU.",
        )
    if missing:
        raise UnsupportedOperatorError(
            f"Device {device.name} has no kernel under {program.contract} for "
            f"{', '.join(missing)}.",
            "Execute the program on the CPU.",
        )
    return _Planner(program, options or PlanOptions(), kernels).plan()
