"""Which worker owns what of a job's state and steps, where several workers execute it.

The tail of a step falls into *groups*: nodes and slots that share tensors, such as a parameter with
its gradient and moments. Groups meet in values of rank 0 only (norms, coefficients, powers), which
are cheap to exchange. One worker owns a group whole, so every kernel sees whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tallystick.errors import UsageError
from tallystick.numerics.operators.fold import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.ir import COMMIT, Program, Value

# What is joined to a group: ("slot", name), ("node", program, number), ("value", program, value).
_Key = tuple[object, ...]


class _Union:
    """Disjoint sets."""

    def __init__(self) -> None:
        self._above: dict[_Key, _Key] = {}

    def find(self, key: _Key) -> _Key:
        root = key
        while self._above.get(root, root) != root:
            root = self._above[root]
        while key != root:
            self._above[key], key = root, self._above[key]
        return root

    def join(self, a: _Key, b: _Key) -> None:
        self._above[self.find(a)] = self.find(b)


@dataclass(frozen=True)
class Owners:
    """The owner of every slot, and of every node of the tails, among `workers` workers.

    `programs` are a job's texts; those with a section are executed in parts, the others by every
    worker by itself. A pure function of the three: every worker knows it without a message.
    `extra` are slots that every worker holds for another reason, such as an evaluation.

    Raises UsageError for a program that cannot be executed so.
    """

    programs: tuple[Program, ...]
    workers: int
    extra: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for number in range(len(self.programs)):
            self._check(number)

    @cached_property
    def types(self) -> dict[str, TensorType]:
        """The type of every slot: all programs of a job have the same."""
        return dict(self.programs[0].state_types)

    @cached_property
    def common(self) -> frozenset[str]:
        """The slots that every worker changes for itself: of rank 0, carried, or of programs that
        every worker executes."""
        found = {name for name, type_ in self.types.items() if not type_.shape}
        for program in self.programs:
            found |= {slot for slot, _ in program.carried}
            if not program.section:
                index = program.input_index
                changed = program.next_state.items()
                found |= {name for name, v in changed if v != Value(-1, index[name])}
        return frozenset(found)

    @cached_property
    def held(self) -> frozenset[str]:
        """The slots that every worker holds: those of `common`, and what micro-batches read."""
        found = set(self.common | self.extra)
        for program in self.programs:
            nodes = program.nodes[: program.section] if program.section else program.nodes
            found |= read_slots(program, range(len(nodes)))
        return frozenset(found & self.types.keys())

    def held_by(self, rank: int) -> list[str]:
        """The slots that worker `rank` holds, in the program's order."""
        return [name for name in self.types if name in self.held or self.slots[name] == rank]

    @cached_property
    def shared(self) -> tuple[frozenset[int], ...]:
        """The `common_nodes` of each program."""
        return tuple(common_nodes(p) if p.section else frozenset() for p in self.programs)

    @cached_property
    def _groups(self) -> _Union:
        union = _Union()
        for number, program in enumerate(self.programs):
            if program.section:
                self._join(union, number, program)
        return union

    def _join(self, union: _Union, number: int, program: Program) -> None:
        shared = self.shared[number]
        carried = {slot for slot, _ in program.carried}

        def key(value: Value) -> _Key | None:
            """What a node that reads `value` is joined to."""
            if not program.type_of(value).shape or value.node in shared:
                return None
            if value.is_input:
                spec = program.inputs[value.out]
                return ("slot", spec.name) if spec.name not in carried else None
            if value.node < program.section:
                return ("value", number, value)
            return ("node", number, value.node)

        for index in range(program.section, len(program.nodes)):
            node = program.nodes[index]
            if index in shared or node.op == COMMIT:
                continue
            keys = [key(v) for v in node.inputs if v is not None]
            for one in keys:
                if one is not None:
                    union.join(("node", number, index), one)
        for slot, value in program.next_state.items():
            one = key(value)
            if one is None or slot in carried:
                continue
            union.join(("slot", slot), one)

    @cached_property
    def _owner_of(self) -> dict[_Key, int]:
        """The owner of each group, by its root: the largest first, to who has least so far."""
        size: dict[_Key, int] = {}
        first: dict[_Key, str] = {}
        for name in sorted(self.types):
            root = self._groups.find(("slot", name))
            size[root] = size.get(root, 0) + self.types[name].nbytes
            first.setdefault(root, name)
        for number, program in enumerate(self.programs):
            for index in range(program.section, len(program.nodes) if program.section else 0):
                node = program.nodes[index]
                if node.op == FOLD and node.out_types[0].shape:
                    root = self._groups.find(("node", number, index))
                    size[root] = size.get(root, 0) + node.out_types[0].nbytes
                    first.setdefault(root, f"\x7f{number:04}.{index:08}")
        load, owner = [0] * self.workers, {}
        for root in sorted(size, key=lambda root: (-size[root], first[root])):
            rank = min(range(self.workers), key=lambda r: (load[r], r))
            owner[root] = rank
            load[rank] += size[root]
        return owner

    @cached_property
    def slots(self) -> Mapping[str, int]:
        """The owner of each slot, who hashes and stores it; of common slots that is worker 0."""
        return {
            name: 0 if name in self.common else self._owner_of[self._groups.find(("slot", name))]
            for name in self.types
        }

    def node(self, number: int, index: int) -> int | None:
        """The owner of node `index` of program `number`'s tail; None where every worker executes
        it."""
        if index in self.shared[number]:
            return None
        return self._owner_of.get(self._groups.find(("node", number, index)), 0)

    def group(self, number: int, index: int) -> _Key:
        """What names the group of a node that has an owner."""
        return self._groups.find(("node", number, index))

    def _check(self, number: int) -> None:
        program, shared = self.programs[number], self.shared[number]
        if not program.section:
            return
        for slot, value in program.next_state.items():
            local = value.node >= program.section and value.node not in shared
            if slot in self.common and local and program.type_of(value).shape:
                raise UsageError(
                    f"Only one worker can execute this job: slot {slot}, which every worker needs, "
                    "becomes a value that one of them makes.",
                    "Train it with one worker (--workers 1).",
                )


def read_slots(program: Program, nodes: Iterable[int]) -> set[str]:
    """The slots that these nodes read."""
    return {
        program.inputs[v.out].name
        for index in nodes
        for v in program.nodes[index].inputs
        if v is not None and v.is_input and program.inputs[v.out].kind == "state"
    }


def common_nodes(program: Program) -> frozenset[int]:
    """The nodes of the tail that every worker executes: those that read only values of rank 0,
    carried slots, and each other's values."""
    carried = {slot for slot, _ in program.carried}
    ends = {value for _, value in program.carried}
    found: set[int] = set()

    def is_common(value: Value) -> bool:
        if not program.type_of(value).shape or value.node in found or value in ends:
            return True
        return value.is_input and program.inputs[value.out].name in carried

    for index in range(program.section, len(program.nodes)):
        node = program.nodes[index]
        if node.op == FOLD:
            alike = not node.out_types[0].shape
        else:
            alike = node.op != COMMIT and all(v is None or is_common(v) for v in node.inputs)
        if alike:
            found.add(index)
    return frozenset(found)


def folds_of(program: Program) -> Sequence[int]:
    """The numbers of the folds of a text's tail."""
    return [i for i in range(program.section, len(program.nodes)) if program.nodes[i].op == FOLD]
