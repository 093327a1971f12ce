"""Which worker owns what of a job's state and steps, where several workers execute it.

The tail of a step falls into *groups*: nodes and slots that share tensors, such as a parameter with
its gradient and moments. Groups meet in values of rank 0 only (norms, coefficients, powers), which
are cheap to exchange. One worker owns a group whole, so every kernel sees whole tensors; but a
large group that is elementwise is cut, and each worker owns a range of it (cutting.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import TensorType
from tallystick.program.cutting import is_large, may_be_cut, range_type, ranges
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
    """The owner of every slot, and of every node of the tails, among `workers` workers; the range
    of each worker where they are cut, which nothing is without `cuts`.

    `programs` are a job's texts; those with a section are executed in parts, the others by every
    worker by itself. A pure function of the four: every worker knows it without a message.
    `extra` are slots that every worker holds for another reason, such as an evaluation.

    Raises UsageError for a program that cannot be executed so.
    """

    programs: tuple[Program, ...]
    workers: int
    extra: frozenset[str] = frozenset()
    cuts: bool = True

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

    def held_by(self, rank: int) -> dict[str, TensorType]:
        """The slots that worker `rank` holds, in the program's order, each with the type of what it
        holds: the whole, or its range, which has rank 1."""
        found = {}
        for name, type_ in self.types.items():
            if name in self.held:
                found[name] = type_
            elif name in self.cut_slots:
                found[name] = self.range_type(type_, rank)
            elif self.slots[name] == rank:
                found[name] = type_
        return found

    def range_type(self, type_: TensorType, rank: int) -> TensorType:
        """The type of worker `rank`'s range of a tensor that is cut."""
        return TensorType(type_.dtype, (len(ranges(type_.numel, self.workers)[rank]),))

    @cached_property
    def _cut(self) -> Mapping[_Key, TensorType]:
        """The groups that are cut, with the type of all their tensors."""
        if not self.cuts or self.workers == 1:
            return {}
        types: dict[_Key, TensorType] = {}
        whole: set[_Key] = set()

        def see(key: _Key, type_: TensorType, fits: bool) -> None:
            root = self._groups.find(key)
            if not fits or types.setdefault(root, type_) != type_:
                whole.add(root)

        for name, type_ in self.types.items():
            see(("slot", name), type_, name not in self.common)
        for number, program in enumerate(self.programs):
            if not program.section:
                continue
            shared = self.shared[number]
            for index in range(program.section, len(program.nodes)):
                node = program.nodes[index]
                if index not in shared and node.op != COMMIT:
                    fits = may_be_cut(program, index, shared)
                    see(("node", number, index), range_type(program, node), fits)
            for slot, value in program.next_state.items():
                # What every worker makes is whole.
                if value.node in shared or 0 <= value.node < program.section:
                    whole.add(self._groups.find(("slot", slot)))
        return {
            root: type_
            for root, type_ in types.items()
            if root not in whole and is_large(type_, self.workers)
        }

    @cached_property
    def cut_slots(self) -> frozenset[str]:
        """The slots of groups that are cut."""
        return frozenset(n for n in self.types if self._groups.find(("slot", n)) in self._cut)

    def is_cut(self, number: int, index: int) -> bool:
        """Whether node `index` of program `number`'s tail belongs to a group that is cut."""
        return self._groups.find(("node", number, index)) in self._cut

    def parts(self, name: str) -> Sequence[tuple[int, range]]:
        """Who owns which elements, row-major, of a slot: (worker, elements)."""
        numel = self.types[name].numel
        if name in self.cut_slots:
            return list(enumerate(ranges(numel, self.workers)))
        return [(self.slots[name], range(numel))]

    def fold_parts(self, number: int, index: int) -> Sequence[tuple[int, range]]:
        """The same of a fold of program `number`'s tail that has an owner."""
        numel = self.programs[number].nodes[index].out_types[0].numel
        if self.is_cut(number, index):
            return list(enumerate(ranges(numel, self.workers)))
        owner = self.node(number, index)
        assert owner is not None
        return [(owner, range(numel))]

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
        """The owner of each group that is not cut, by its root: the largest first, to who has least
        so far."""
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
        uncut = [root for root in size if root not in self._cut]
        for root in sorted(uncut, key=lambda root: (-size[root], first[root])):
            rank = min(range(self.workers), key=lambda r: (load[r], r))
            owner[root] = rank
            load[rank] += size[root]
        return owner

    @cached_property
    def slots(self) -> Mapping[str, int]:
        """The owner of each slot that is not cut, who hashes and stores it; of common slots that is
        worker 0."""
        return {
            name: 0 if name in self.common else self._owner_of[self._groups.find(("slot", name))]
            for name in self.types
            if name not in self.cut_slots
        }

    def node(self, number: int, index: int) -> int | None:
        """The owner of node `index` of program `number`'s tail; None where every worker executes
        it, on the whole or on its range."""
        if index in self.shared[number] or self.is_cut(number, index):
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
