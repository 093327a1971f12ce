"""A program with micro-batches as the flat program that its runs execute (PROGRAM 6.7).

Prover, referee and judge count the nodes of this one. Nodes are made when they are asked for: what
a section's node has in all micro-batches, attributes and types, is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.operators.reduction import FOLD, MOST_PARTS, WIDTH
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Input, Node, Program, Value, input_value, op_spec

_DRAWS = 1 << 32  # NUMERICS 8.1
_FOLDED = 1 << 22  # PROGRAM 6.8


def part_name(name: str, part: int) -> str:
    """The name of micro-batch `part`'s share of a batch tensor; no text can have it."""
    return f"{name}#{part}"


def part_of_name(name: str) -> tuple[str, int | None]:
    """A batch input's field and the micro-batch whose share it is; None for a text 1's input."""
    field_name, mark, part = name.partition("#")
    return field_name, int(part) if mark else None


def split_batch(batch: Mapping[str, Any], parts: int) -> dict[str, Any]:
    """A step's batch as the batch of the expanded program: consecutive places, without copies.

    Raises UsageError unless `parts` divides the first axis of each tensor.
    """
    found: dict[str, Any] = {}
    for name, tensor in batch.items():
        shape = tensor.shape
        if not shape or shape[0] % parts:
            raise UsageError(
                f"The batch tensor {name} of shape {list(shape)} cannot be split into {parts} "
                "micro-batches.",
                "Choose a number of micro-batches that divides the batch.",
            )
        size = shape[0] // parts
        for part in range(parts):
            found[part_name(name, part)] = tensor[part * size : (part + 1) * size]
    return found


@dataclass(frozen=True)
class Numbering:
    """Where the expanded program has what: N nodes in the section, V micro-batches.

    `tail` has the number, from V·N on, of each of the text's tail nodes; `carried` are the values
    that outlive their micro-batch.
    """

    section: int
    parts: int
    draws: int
    tail: tuple[int, ...]
    total: int

    def node(self, index: int, part: int) -> int:
        """The number of the text's node `index`, of micro-batch `part` if it is the section's."""
        if index < self.section:
            return part * self.section + index
        return self.tail[index - self.section]

    def value(self, value: Value, part: int) -> Value:
        """`node` for a value that a node makes."""
        return Value(self.node(value.node, part), value.out)

    def attrs(self, node: Node, part: int) -> Any:
        """The attributes of a section's node in micro-batch `part`: a draw id is its own."""
        if not part or not op_spec(node.op).is_random:
            return node.attrs
        draw = node.attrs["draw"]
        assert isinstance(draw, int)
        return {**node.attrs, "draw": part * self.draws + draw}


def numbering(program: Program, parts: int) -> Numbering:
    """The numbers of the expansion of `program`, a text 2, for `parts` micro-batches.

    Raises UsageError where a limit does not allow so many.
    """
    if not 1 <= parts <= MOST_PARTS:
        raise UsageError(
            f"micro_batches is {parts}, which is not between 1 and {MOST_PARTS}.",
            "Choose another number.",
        )
    at = parts * program.section
    tail = []
    for index in range(program.section, len(program.nodes)):
        at += len(_levels(parts)) if program.nodes[index].op == FOLD else 0
        tail.append(at)
        at += 1
    draws = draws_of(program)
    folds = sum(node.op == FOLD for node in program.nodes)
    batch = sum(spec.kind == "batch" for spec in program.inputs)
    inputs = len(program.inputs) + (parts - 1) * batch
    too_many = [
        f"{count} {what}, more than {limit}"
        for count, what, limit in (
            (at, "nodes", LIMITS.nodes),
            (inputs, "inputs", LIMITS.slots),
            (parts * draws, "random draws", _DRAWS),
            (parts * folds, "folded values", _FOLDED),
        )
        if count > limit
    ]
    if too_many:
        raise UsageError(
            f"With {parts} micro-batches a step has {too_many[0]} (PROGRAM 6.8).",
            "Choose fewer micro-batches, of more records each.",
        )
    return Numbering(program.section, parts, draws, tuple(tail), at)


def _levels(parts: int) -> list[tuple[int, int]]:
    """The lower folds of a fold of `parts` values: (first operand, the one after the last), counted
    over the values and then over these folds' results (PROGRAM 6.7 c)."""
    found: list[tuple[int, int]] = []
    first, count = 0, parts
    while count > WIDTH:
        blocks = [
            (first + i, first + min(i + WIDTH, count)) for i in range(0, count, WIDTH)
        ]  # fmt: skip
        found += blocks
        first, count = first + count, len(blocks)
    return found


class ExpandedNodes(Sequence[Node]):
    """The nodes of an expanded program. Those of the section are made when they are read; the
    tail's are kept."""

    def __init__(self, program: Program, numbers: Numbering) -> None:
        self.source, self.numbers = program, numbers
        self.inputs, self._place = _inputs(program, numbers.parts)
        self._carried = dict(program.carried)
        self._tail = self._tail_nodes()

    def __len__(self) -> int:
        return self.numbers.total

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExpandedNodes):
            return NotImplemented
        return (self.source, self.numbers.parts) == (other.source, other.numbers.parts)

    def __hash__(self) -> int:
        return hash((len(self.source.nodes), self.numbers.parts, self.source.outputs))

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | Sequence[Node]:
        if isinstance(index, slice):
            return tuple(self._node(i) for i in range(*index.indices(len(self))))
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"there is no node {index}")
        return self._node(at)

    def __iter__(self) -> Iterator[Node]:
        return map(self._node, range(len(self)))

    def original(self, index: int) -> tuple[int, int | None]:
        """The text's node that number `index` is, and its micro-batch; of a lower level of a fold
        the fold, and None as for all of the tail."""
        part, at = divmod(index, self.numbers.section)
        if part < self.numbers.parts:
            return at, part
        return self._tail[index - self.numbers.parts * self.numbers.section][0], None

    def out_types(self, index: int) -> tuple[TensorType, ...]:
        """The types of a node's outputs."""
        return self.source.nodes[self.original(index)[0]].out_types

    def input(self, index: int, part: int) -> Value:
        """The text's input `index` as micro-batch `part` reads it."""
        spec = self.source.inputs[index]
        if spec.kind == "batch":
            return input_value(self._place[part_name(spec.name, part)])
        if part and spec.name in self._carried:
            return self.numbers.value(self._carried[spec.name], part - 1)
        return input_value(self._place[spec.name])

    def after(self, value: Value) -> Value:
        """A value as the tail and the outputs read it: the section's is the last micro-batch's."""
        if value.is_input:
            return input_value(self._place[self.source.inputs[value.out].name])
        return self.numbers.value(value, self.numbers.parts - 1)

    def _node(self, index: int) -> Node:
        part, at = divmod(index, self.numbers.section)
        if part >= self.numbers.parts:
            return self._tail[index - self.numbers.parts * self.numbers.section][1]
        node = self.source.nodes[at]
        inputs = tuple(
            None
            if v is None
            else self.input(v.out, part)
            if v.is_input
            else self.numbers.value(v, part)
            for v in node.inputs
        )
        return Node(node.op, inputs, self.numbers.attrs(node, part), node.out_types)

    def _tail_nodes(self) -> list[tuple[int, Node]]:
        found: list[tuple[int, Node]] = []
        for index in range(self.source.section, len(self.source.nodes)):
            node = self.source.nodes[index]
            if node.op == FOLD:
                found += [(index, made) for made in self._fold(node, self.numbers.node(index, 0))]
                continue
            inputs = tuple(None if v is None else self.after(v) for v in node.inputs)
            found.append((index, Node(node.op, inputs, node.attrs, node.out_types)))
        return found

    def _fold(self, node: Node, number: int) -> list[Node]:
        """The nodes of one fold, the last of which has this number."""
        (value,), parts = node.inputs, self.numbers.parts
        assert value is not None
        given = [self.numbers.value(value, part) for part in range(parts)]
        levels = _levels(parts)
        made = []
        for k, (first, last) in enumerate(levels):
            made.append(Node(FOLD, tuple(given[first:last]), {"mean": False}, node.out_types))
            given.append(Value(number - len(levels) + k, 0))
        attrs = node.attrs
        if levels and attrs["mean"]:
            attrs = {"count": parts, "mean": True}
        rest = given[levels[-1][1] :] if levels else given
        return [*made, Node(FOLD, tuple(rest), attrs, node.out_types)]


def _inputs(program: Program, parts: int) -> tuple[tuple[Input, ...], dict[str, int]]:
    """The inputs, each batch tensor once for each micro-batch, and their places by name."""
    found = []
    for spec in program.inputs:
        if spec.kind == "batch":
            found += [Input("batch", part_name(spec.name, v), spec.type) for v in range(parts)]
        else:
            found.append(spec)
    found.sort(key=lambda spec: spec.name.encode())
    return tuple(found), {spec.name: i for i, spec in enumerate(found)}


@dataclass(frozen=True)
class Expanded(Program):
    """The flat program of `source`, a text 2, for `micro_batches` micro-batches.

    Its text and digest are the source's (PROGRAM 6.9). `expanded` are its nodes.
    """

    source: Program = field(kw_only=True)
    micro_batches: int = field(kw_only=True)

    @property
    def expanded(self) -> ExpandedNodes:
        """`nodes`, with what they know about the text."""
        assert isinstance(self.nodes, ExpandedNodes)
        return self.nodes

    def type_of(self, value: Value) -> TensorType:
        if value.is_input:
            return self.inputs[value.out].type
        if not 0 <= value.node < len(self.nodes):
            raise IndexError(f"there is no node {value.node}")
        return self.expanded.out_types(value.node)[value.out]

    def text(self) -> str:
        return self.source.text()

    def digest(self) -> bytes:
        return self.source.digest()


def expand(program: Program, micro_batches: int) -> Program:
    """The flat program of `program` for `micro_batches` micro-batches (PROGRAM 6.7).

    A text 1 is its own for 1. The batch inputs of a text 2 become `batch.FIELD#v` (`split_batch`).
    Raises UsageError for a number that the program or the limits do not allow.
    """
    if not program.section:
        if micro_batches != 1:
            raise UsageError(
                "This program has no section for micro-batches (a program text 1).",
                "Capture it with micro_batches=, or use one micro-batch.",
            )
        return program
    nodes = ExpandedNodes(program, numbering(program, micro_batches))
    outputs = tuple((name, nodes.after(value)) for name, value in program.outputs)
    return Expanded(
        program.contract, nodes.inputs, nodes, outputs, source=program, micro_batches=micro_batches
    )


def step_batch_types(program: Program, micro_batches: int) -> dict[str, TensorType]:
    """The types of a whole step's batch, by field: `program` has those of one micro-batch."""
    parts = micro_batches if program.section else 1
    return {
        name: TensorType(t.dtype, (t.shape[0] * parts, *t.shape[1:]) if t.shape else ())
        for name, t in program.batch_types.items()
    }


def kinds(program: Program) -> list[int]:
    """Numbers of nodes such that every other node is one of these in another micro-batch."""
    if not isinstance(program, Expanded):
        return list(range(len(program.nodes)))
    section, tail = program.source.section, program.micro_batches * program.source.section
    return [*range(section), *range(tail, len(program.nodes))]


def extremes(program: Program) -> list[int]:
    """`kinds`, and the nodes of the last micro-batch, whose draw ids are the longest."""
    found = kinds(program)
    if isinstance(program, Expanded) and program.micro_batches > 1:
        section, last = program.source.section, program.micro_batches - 1
        found += range(last * section, (last + 1) * section)
    return found


def times(program: Program, number: int) -> int:
    """How many nodes one of `kinds` stands for."""
    if isinstance(program, Expanded) and number < program.source.section:
        return program.micro_batches
    return 1


def micro_batch_of(program: Program, number: int) -> tuple[int, int] | None:
    """(micro-batch, node of the text) of a node of a section; None for any other node."""
    if not isinstance(program, Expanded):
        return None
    at, part = program.expanded.original(number)
    return None if part is None else (part, at)


def draws_of(section: Program) -> int:
    """R: one more than the largest draw id of the section's random nodes (PROGRAM 6.7)."""
    nodes = (section.nodes[i] for i in range(section.section))
    draws = [node.attrs["draw"] for node in nodes if op_spec(node.op).is_random]
    return 1 + max((d for d in draws if isinstance(d, int)), default=-1)


def reads_carried(program: Program, index: int) -> bool:
    """True if node `index` of the section depends on what the micro-batch before has made."""
    carried = {name for name, _ in program.carried}
    waiting, seen = [index], {index}
    while waiting:
        for value in program.nodes[waiting.pop()].inputs:
            if value is None:
                continue
            if value.is_input:
                if program.inputs[value.out].name in carried:
                    return True
            elif value.node not in seen:
                seen.add(value.node)
                waiting.append(value.node)
    return False


def is_forward(program: Program) -> Callable[[int], bool]:
    """Whether a node, by its number, comes no later than the loss of its micro-batch, or of the
    program where that has none. Without a loss every node does."""
    source = program.source if isinstance(program, Expanded) else program
    loss = source.output_values.get("loss")
    if loss is None:
        return lambda _: True
    last, waiting = -1, [loss]
    while waiting:
        value = waiting.pop()
        if value.node >= source.section > 0:
            waiting += [v for v in source.nodes[value.node].inputs if v is not None]
        else:
            last = max(last, value.node)

    def forward(number: int) -> bool:
        if source is program:
            return number <= last
        found = micro_batch_of(program, number)
        return found is not None and found[1] <= last

    return forward
