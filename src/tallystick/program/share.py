"""A share of a step as a program of its own: what one of several workers computes and sends.

A share is an aligned subtree [first, first + 2^level) of a step's micro-batches: of each folded
value the sum over them, and of each micro-batch the statistics that carry slots (carry.py). The
program is a text 1. Its nodes are those of the expanded step, with their own draw ids, and the
additions that a worker makes between them (folded_tail.py). Where nobody disputes it, it need not
be executed: it says which task a worker's signed claim is about (docs/adr/0024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.carry import Carrying, zeros_of
from tallystick.program.expand import Numbering, numbering
from tallystick.program.ir import BATCH_PREFIX, Program, Value

# Names of slots: no slot that a capture makes begins so.
_PREFIX = "share."
_INPUT = -1  # the node of a Value that is an input of the text
Tree = tuple[int, int]  # (level, first micro-batch) of a subtree of the split


def sum_slot(number: int) -> str:
    """The slot of the sum of folded value `number`, in the order of `Share.values`."""
    return f"{_PREFIX}sum.{number:05d}"


def statistic_slot(part: int, number: int) -> str:
    """The slot of statistic `number`, in the order of `Share.sent`, of micro-batch `part`."""
    return f"{_PREFIX}statistic.{part:05d}.{number:05d}"


def parts_of(tree: Tree) -> range:
    """The micro-batches of a subtree."""
    level, first = tree
    return range(first, first + (1 << level))


@dataclass
class Share:
    """The share `tree` of a step of `source`, a text 2, with `micro_batches` micro-batches.

    `program` computes it from the slots `reads`, which it passes through, and writes it into the
    slots `made`, zeros before. `values` are the folded values and `sent` the statistics, both by
    their numbers in the text. `nodes` says which node of `program` is node i of micro-batch v, by
    (v, i).

    Raises UsageError for a subtree that the step does not have, and as Carrying.
    """

    source: Program
    micro_batches: int
    tree: Tree
    program: Program = field(init=False)
    values: tuple[Value, ...] = field(init=False)
    sent: tuple[Value, ...] = field(init=False)
    reads: tuple[str, ...] = field(init=False)
    made: dict[str, TensorType] = field(init=False)
    nodes: dict[tuple[int, int], int] = field(init=False)

    def __post_init__(self) -> None:
        level, first = self.tree
        size = 1 << max(level, 0)
        if level < 0 or first < 0 or first % size or first + size > self.micro_batches:
            raise UsageError(
                f"Micro-batches {first} to {first + size - 1} are no share of a step of "
                f"{self.micro_batches}.",
                "Name an aligned subtree.",
            )
        carrying = Carrying(self.source)
        folds = [node for node in self.source.nodes if node.op == FOLD]
        self.values = tuple(sorted({v for node in folds for v in node.inputs if v is not None}))
        self.sent = tuple(sorted(carrying.sent))
        written = _ShareText(self, carrying)
        self.reads, self.nodes = tuple(written.state), written.numbers
        self.made = {name: type_ for name, type_, _ in written.slots}
        self.program = written.finish()

    @property
    def parts(self) -> range:
        """The micro-batches of the share."""
        return parts_of(self.tree)

    def slots(
        self, sums: Mapping[Value, object], statistics: Sequence[Mapping[Value, object]]
    ) -> dict[str, object]:
        """Values by slot: `sums` has each folded value's sum over the share, `statistics` the sent
        values of each of its micro-batches, in order."""
        found = {sum_slot(k): sums[value] for k, value in enumerate(self.values)}
        for part, given in zip(self.parts, statistics, strict=True):
            found |= {statistic_slot(part, k): given[v] for k, v in enumerate(self.sent)}
        return found


class _ShareText:
    """The text under way."""

    def __init__(self, share: Share, carrying: Carrying) -> None:
        self._source, self._parts = share.source, share.parts
        self._alone = carrying.nodes
        self._numbers: Numbering = numbering(share.source, share.micro_batches)
        self._live = self._needed([*share.values, *share.sent])
        self._zeros: dict[Value, Value] = {}
        self._builder = b = Builder(share.source.contract)
        types = {
            **{sum_slot(k): share.source.type_of(v) for k, v in enumerate(share.values)},
            **{
                statistic_slot(part, k): share.source.type_of(v)
                for part in share.parts
                for k, v in enumerate(share.sent)
            },
        }
        self.state: dict[str, Value] = {}
        self._scalars: dict[str, Value] = {}
        self._batch: dict[str, Value] = {}
        self._declare()
        for name, type_ in types.items():
            if name in share.source.state_types:
                raise UsageError(
                    f"The state already has a slot {name}.", "Rename the module's slot."
                )
            b.state(name, type_)
        self.numbers: dict[tuple[int, int], int] = {}
        self._sums: list[list[tuple[int, Value]]] = [[] for _ in share.values]
        found: dict[str, Value] = {}
        for part in share.parts:
            made = self._micro_batch(part)
            for held, value in zip(self._sums, share.values, strict=True):
                self._add(held, part - share.parts.start, made[value])
            found |= {statistic_slot(part, k): made[v] for k, v in enumerate(share.sent)}
        found |= {sum_slot(k): held[0][1] for k, held in enumerate(self._sums)}
        self.slots = [(name, types[name], value) for name, value in found.items()]

    def finish(self) -> Program:
        b = self._builder
        loss = b.one("aten.full", [], size=(), value=0.0, dtype="f32")
        after = {**self.state, **{name: value for name, _, value in self.slots}}
        b.commit(after)
        return b.finish({"loss": loss, **after})

    def _needed(self, ends: Sequence[Value]) -> list[int]:
        """The section's nodes that the share depends on, in order."""
        found: set[int] = set()
        waiting = list(ends)
        while waiting:
            value = waiting.pop()
            if value.node < 0 or value.node in found:
                continue
            found.add(value.node)
            waiting += [v for v in self._alone[value.node].inputs if v is not None]
        return sorted(found)

    def _declare(self) -> None:
        """The inputs that the nodes read, and all of the batch: its fields are the record's."""
        b, count = self._builder, len(self._parts)
        nodes = [self._alone[i] for i in self._live]
        read = {v.out for n in nodes for v in n.inputs if v is not None and v.node == _INPUT}
        for index, spec in enumerate(self._source.inputs):
            if spec.kind == "state" and index in read:
                self.state[spec.name] = b.state(spec.name, spec.type)
            elif spec.kind == "scalar" and index in read:
                name = spec.name.removeprefix("scalar.")
                self._scalars[spec.name] = b.scalar(name)
            elif spec.kind == "batch":
                rows, *rest = spec.type.shape
                type_ = TensorType(spec.type.dtype, (rows * count, *rest))
                self._batch[spec.name] = b.batch(spec.name.removeprefix(BATCH_PREFIX), type_)

    def _input(self, index: int, cut: Mapping[str, Value]) -> Value:
        spec = self._source.inputs[index]
        if spec.kind == "state":
            return self.state[spec.name]
        if spec.kind == "scalar":
            return self._scalars[spec.name]
        return cut[spec.name] if spec.kind == "batch" else self._builder.rng()

    def _zeros_as(self, value: Value) -> Value:
        spec = zeros_of(value)
        assert spec is not None
        if value not in self._zeros:
            shape, dtype = spec.type.shape, spec.type.dtype
            self._zeros[value] = self._builder.one(
                "aten.full", [], size=shape, value=0.0, dtype=dtype
            )
        return self._zeros[value]

    def _cut(self, part: int) -> dict[str, Value]:
        """The batch's tensors as micro-batch `part` has them."""
        if len(self._parts) == 1:
            return self._batch
        at, found = part - self._parts.start, {}
        nodes = [self._alone[i] for i in self._live]
        read = {v.out for n in nodes for v in n.inputs if v is not None and v.node == _INPUT}
        for name, whole in self._batch.items():
            if self._source.input_index[name] not in read:
                continue
            rows = self._builder.type_of(whole).shape[0] // len(self._parts)
            span = {"dim": 0, "start": at * rows, "end": (at + 1) * rows, "step": 1}
            found[name] = self._builder.one("aten.slice", [whole], **span)
        return found

    def _micro_batch(self, part: int) -> dict[Value, Value]:
        made: dict[Value, Value] = {}
        cut = self._cut(part)

        def here(value: Value | None) -> Value | None:
            if value is None:
                return None
            if value in made:
                return made[value]
            return self._input(value.out, cut) if value.node == _INPUT else self._zeros_as(value)

        for index in self._live:
            node = self._alone[index]
            given = [here(value) for value in node.inputs]
            outs = self._builder.emit(node.op, given, **self._numbers.attrs(node, part))
            self.numbers[part, index] = outs[0].node
            made |= {Value(index, out): value for out, value in enumerate(outs)}
        return made

    def _add(self, held: list[tuple[int, Value]], place: int, one: Value) -> None:
        """Add the value of the micro-batch at `place` of the share, as PartialSums does."""
        level = 0
        while place >> level & 1:
            one = self._builder.one(FOLD, [held.pop()[1], one], mean=False)
            level += 1
        held.append((level, one))
