"""The tail of a step, as the pieces that one of several workers executes (owners.py).

Groups of different owners exchange values of rank 0. So the tail has phases, with an exchange
after each but the last: a clipped step computes the sums of squares of its gradients in the first,
and all else in the second. Every node is executed as late as its readers allow. So only the last
phase writes into the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.build import given, piece, value_name
from tallystick.program.cutting import SUM_SQUARES
from tallystick.program.expand import Numbering
from tallystick.program.ir import COMMIT, Input, Node, Program, Value
from tallystick.program.owners import Owners


@dataclass(frozen=True)
class Phase:
    """What a worker executes at once.

    `numbers` are the nodes' in the expanded program. `kept` are the outputs that the worker's
    later phases read. `exchanged` are the values of rank 0 that all workers need afterwards, of
    all owners, with each one's owner. `squares` are those that all workers make together: a sum of
    squares, and its operand, which is cut.
    """

    program: Program
    numbers: tuple[int, ...]
    kept: tuple[Value, ...]
    exchanged: tuple[tuple[Value, int], ...]
    squares: tuple[tuple[Value, Value], ...]


@dataclass
class Tail:
    """The phases of worker `rank` for program `number` of `owners`."""

    owners: Owners
    number: int
    rank: int
    numbering: Numbering
    phases: list[Phase] = field(init=False)

    def __post_init__(self) -> None:
        self.program = program = self.owners.programs[self.number]
        self._tail = [
            i for i in range(program.section, len(program.nodes)) if program.nodes[i].op != COMMIT
        ]
        self._group = {
            i: self.owners.group(self.number, i)
            for i in self._tail
            if i not in self.owners.shared[self.number]
        }
        self._cut = {i for i in self._group if self.owners.is_cut(self.number, i)}
        self._readers: dict[Value, list[int]] = {}
        for i in self._tail:
            for value in program.nodes[i].inputs:
                if value is not None and value.node in self._places:
                    self._readers.setdefault(value, []).append(i)
        self._outputs = [
            (name, value)
            for name, value in program.outputs
            if name in self.owners.types or not program.type_of(value).shape
        ]
        self._late = self._latest()
        self.phases = [self._phase(p) for p in range(self._count)]

    @property
    def _places(self) -> range:
        return range(self.program.section, len(self.program.nodes))

    def folds(self) -> list[int]:
        """The tail's folds."""
        return [i for i in self._tail if self.program.nodes[i].op == FOLD]

    # -- phases ----------------------------------------------------------------------------------

    def _crosses(self, value: Value, reader: int | None) -> bool:
        """Whether `reader`, a node or None for the program's end, gets `value` by an exchange."""
        if value.node not in self._group:
            return False
        if self._is_made_together(value.node):
            return True
        return reader is None or self._group.get(reader) != self._group[value.node]

    def _is_made_together(self, node: int) -> bool:
        return node in self._cut and self.program.nodes[node].op == SUM_SQUARES

    def _end_crosses(self, name: str, value: Value) -> bool:
        """Whether the output `name` is a value of rank 0 that all workers get by an exchange."""
        return not self.program.type_of(value).shape and value.node in self._group

    def _latest(self) -> dict[int, int]:
        early: dict[int, int] = {}
        for i in self._tail:
            values = [v for v in self.program.nodes[i].inputs if v is not None and v.node in early]
            early[i] = max((early[v.node] + self._crosses(v, i) for v in values), default=0)
        ends = [
            early[v.node] + self._end_crosses(name, v)
            for name, v in self._outputs
            if v.node in early
        ]
        self._count = 1 + max([*early.values(), *ends], default=0)
        late: dict[int, int] = {}

        def bound(value: Value, phase: int) -> None:
            if value.node in early:
                late[value.node] = min(late.get(value.node, phase), phase)

        for name, value in self._outputs:
            bound(value, self._count - 1 - self._end_crosses(name, value))
        for i in reversed(self._tail):
            if i in late:
                for read in self.program.nodes[i].inputs:
                    if read is not None:
                        bound(read, late[i] - self._crosses(read, i))
        return late

    def _is_exchanged(self, value: Value) -> bool:
        if any(self._crosses(value, reader) for reader in self._readers.get(value, ())):
            return True
        return any(v == value and self._end_crosses(name, v) for name, v in self._outputs)

    def _is_kept(self, value: Value, phase: int) -> bool:
        """Whether its owner reads a value of `phase` later, or ends with it."""
        later = [r for r in self._readers.get(value, ()) if self._late.get(r, 0) > phase]
        if any(not self._crosses(value, reader) for reader in later):
            return True
        ends = any(v == value and not self._end_crosses(name, v) for name, v in self._outputs)
        return ends and phase < self._count - 1

    def _made_in(self, phase: int) -> Iterable[Value]:
        """The values of all groups' nodes of a phase."""
        for i in self._tail:
            if i in self._group and self._late.get(i) == phase:
                for out in range(len(self.program.nodes[i].out_types)):
                    yield Value(i, out)

    # -- a piece ---------------------------------------------------------------------------------

    def _phase(self, phase: int) -> Phase:
        program, is_last = self.program, phase == self._count - 1
        made = list(self._made_in(phase))
        squares = {v: self._operand(v) for v in made if self._is_made_together(v.node)}
        own = [v for v in made if v not in squares and self._is_own(v.node)]
        exchanged = [v for v in made if v not in squares and self._is_exchanged(v)]
        read = [v for v in own if v in squares.values() or self._is_kept(v, phase)]
        kept = [v for v in read if program.nodes[v.node].op != FOLD]
        outputs = [(value_name(v), v) for v in own if v in kept or v in exchanged]
        if is_last:
            outputs += [
                (name, value) for name, value in self._outputs if self._ends_here(name, value)
            ]
        nodes = self._nodes({v.node for v in own}, [v for _, v in outputs])
        inside = {number: at for at, number in enumerate(nodes)}

        def place(value: Value) -> Value | Input:
            if value.is_input:
                return self._input(program.inputs[value.out])
            if value.node in inside:
                return Value(inside[value.node], value.out)
            return given(value_name(value), self.type_of(value))

        state = [
            self._input(spec)
            for spec in program.inputs
            if spec.name in self.owners.types and any(spec.name == name for name, _ in outputs)
        ]
        text = piece(program.contract, [self._node(i) for i in nodes], outputs, place, state)
        return Phase(
            text,
            tuple(self.numbering.node(i, 0) for i in nodes),
            tuple(kept),
            tuple((v, self.owners.node(self.number, v.node) or 0) for v in exchanged),
            tuple(squares.items()),
        )

    def _is_own(self, node: int) -> bool:
        """Whether this worker executes a node of a group, or its range of it."""
        return node in self._cut or self.owners.node(self.number, node) == self.rank

    def _operand(self, square: Value) -> Value:
        (x,) = self.program.nodes[square.node].inputs
        assert x is not None
        return x

    def type_of(self, value: Value) -> TensorType:
        """The type of what this worker has of a value of a group's node: of a cut one its range."""
        type_ = self.program.type_of(value)
        if value.node in self._cut and type_.shape:
            return self.owners.range_type(type_, self.rank)
        return type_

    def _input(self, spec: Input) -> Input:
        if spec.name not in self.owners.cut_slots:
            return spec
        return replace(spec, type=self.owners.range_type(spec.type, self.rank))

    def _node(self, index: int) -> Node:
        """A node as this worker executes it."""
        node = self.program.nodes[index]
        types = (self.type_of(Value(index, out)) for out in range(len(node.out_types)))
        return replace(node, out_types=tuple(types))

    def _ends_here(self, name: str, value: Value) -> bool:
        """Whether this worker's last phase has the output `name`."""
        if name not in self.owners.types:
            return True
        if value == Value(-1, self.program.input_index[name]):
            return False  # passed through
        owners = self.owners
        if name in owners.common or name in owners.cut_slots:
            return True
        return owners.slots[name] == self.rank

    def _nodes(self, own: set[int], outputs: list[Value]) -> list[int]:
        """The nodes of a piece: `own` without folds, which are given, and the common nodes that
        they and the outputs read."""
        found = {i for i in own if self.program.nodes[i].op != FOLD}
        waiting = [*outputs, *(v for i in found for v in self.program.nodes[i].inputs)]
        while waiting:
            value = waiting.pop()
            if value is None or value.node not in self._places or value.node in found:
                continue
            node = self.program.nodes[value.node]
            if value.node in self.owners.shared[self.number] and node.op != FOLD:
                found.add(value.node)
                waiting += node.inputs
        return sorted(found)
