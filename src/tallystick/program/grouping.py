"""Which nodes are executed together, block by block (blocks.py): groups along large values.

1. A node joins the groups of its operands, where all their results share leading axes and no node
   between them needs the group's results first.
2. A large value that a later group reads is computed there again, if that is cheap and its own
   operands live anyway.
3. A group remains if it spares a large value. All else is executed node by node.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tallystick.devices.device import Kernel
from tallystick.kernels.evaluate import view
from tallystick.kernels.parts import is_cheap, leading_axes
from tallystick.program.blocks import BlockGroup, Shape, prefix
from tallystick.program.ir import COMMIT, Node, Program, Value, op_spec
from tallystick.program.schedule import in_order, view_roots, views_of

# What the executor executes at one place of its order: a node, or a group of nodes.
Item = int | BlockGroup

# A group is formed for the sake of values of at least this many bytes.
LARGE = 4 << 20
# The first and the last node of a group are at most this many nodes apart.
_SPAN = 64


def _whole_axes(shape: Shape, result: Shape, axes: int) -> bool:
    """True if an operand of `shape` has, along each of `result`'s first `axes` axes, its size, one
    index or no axis; axes are aligned at the end."""
    ahead = len(result) - len(shape)
    return all(
        i < ahead or shape[i - ahead] in (1, result[i]) for i in range(min(axes, len(result)))
    )


class Grouping:
    """The groups of a program whose nodes are executed in `order`, with the kernels `kernels`.

    Neither `lasting` nor `whole` nodes join a group. The values of `lasting` ones exist from the
    first node to the last; `whole` ones make theirs in their turn.
    """

    def __init__(
        self,
        program: Program,
        order: Sequence[int],
        kernels: Mapping[str, Kernel],
        lasting: Collection[int],
        whole: Collection[int],
    ) -> None:
        self.program = program
        self.kernels = kernels
        self.position = {index: at for at, index in enumerate(order)}
        self.order = order
        self.roots = view_roots(program)
        # These are asked for again and again.
        self._views = {i for i, node in enumerate(program.nodes) if node.op in view}
        self._read = [tuple(v for v in node.inputs if v is not None) for node in program.nodes]
        self._known_axes: dict[int, int] = {}
        self.readers: dict[Value, list[int]] = {}
        for index in order:
            if not self._is_view(index):
                for value in self._operands(index):
                    self.readers.setdefault(self._root(value), []).append(index)
        self.results = {self._root(value) for _, value in program.outputs}
        # A next state is written in place by its own node, on whole tensors.
        in_place = {self._root(value).node for value in program.next_state.values()}
        self.apart = {*lasting, *whole, *in_place}
        self.lasting = lasting
        self.group_of: dict[int, BlockGroup] = {}

    # -- the program -------------------------------------------------------------------------

    def _node(self, index: int) -> Node:
        return self.program.nodes[index]

    def _is_view(self, index: int) -> bool:
        return index in self._views

    def _operands(self, index: int) -> tuple[Value, ...]:
        return self._read[index]

    def _root(self, value: Value) -> Value:
        return self.roots.get(value, value)

    def _bytes(self, value: Value) -> int:
        return self.program.type_of(value).nbytes

    def _values(self, index: int) -> list[Value]:
        return [Value(index, out) for out in range(len(self._node(index).out_types))]

    # -- what fits together ------------------------------------------------------------------

    def _axes(self, index: int) -> int:
        if index not in self._known_axes:
            node = self._node(index)
            apart = index in self.apart or node.op in view or node.op == COMMIT
            self._known_axes[index] = (
                0
                if apart or not node.out_types
                else leading_axes(node.op, node.attrs, node.out_types[0])
            )
        return self._known_axes[index]

    def _fits(self, index: int, outer: Shape, own: Iterable[int]) -> bool:
        """True if node `index` can be executed by blocks of `outer`, beside the nodes `own`."""
        node = self._node(index)
        shape = node.out_types[0].shape
        axes = prefix(shape, outer)
        if axes is None or axes > self._axes(index):
            return False
        if any(t.shape[:axes] != shape[:axes] for t in node.out_types):
            return False
        for value in self._operands(index):
            given = self.program.type_of(value).shape
            if not _whole_axes(given, shape, axes):
                return False
            if self._root(value).node in own and (
                len(given) != len(shape)
                or given[:axes] != shape[:axes]
                or not self._parts_of_view(value, outer, self.kernels[node.op].strided)
            ):
                return False
        return True

    def _parts_of_view(self, value: Value, outer: Shape, strides: bool) -> bool:
        """True if a block of `value` is a view of the same block of the value that it views: a
        contiguous one, or one of any `strides`."""
        contiguous = not strides
        for index in reversed(views_of(self.program, value)[1]):
            node = self._node(index)
            shape, source = node.out_types[0].shape, self._operands(index)[0]
            axes, given = prefix(shape, outer), self.program.type_of(source).shape
            if axes is None or prefix(given, outer) is None:
                return False
            if node.op == "aten.view":
                contiguous = True  # of other strides it might be a copy
            elif contiguous or len(given) != len(shape) or given[:axes] != shape[:axes]:
                return False
            elif node.op == "aten.permute":
                if node.attrs["dims"][:axes] != tuple(range(axes)):  # type: ignore[index]
                    return False
            elif node.op != "aten.expand":
                return False
        return True

    def _outer(self, group: BlockGroup) -> Shape | None:
        """The longest leading axes that suit all nodes of `group`."""
        nodes = group.members | group.again
        candidates = set()
        for index in nodes:
            shape = self._node(index).out_types[0].shape[: self._axes(index)]
            for count in range(1, len(shape) + 1):
                candidates.add(tuple(size for size in shape[:count] if size != 1))
        for outer in sorted(candidates, key=lambda o: (-math.prod(o), -len(o), o)):
            if math.prod(outer) > 1 and all(self._fits(i, outer, nodes) for i in nodes):
                return outer
        return None

    def _is_convex(self, members: Iterable[int]) -> bool:
        """True if no member needs a value that is made from members' values outside of them."""
        at = sorted(self.position[index] for index in members)
        if at[-1] - at[0] > _SPAN:
            return False
        inside, after = set(members), set[int]()
        for index in self.order[at[0] : at[-1] + 1]:
            made = {value.node for value in self._operands(index)}
            if self._is_view(index):
                if made & (inside | after):
                    (after if made & after else inside).add(index)
            elif index in inside:
                if made & after:
                    return False
            elif made & (inside | after):
                after.add(index)
        return True

    def _merged(self, one: BlockGroup, other: BlockGroup) -> BlockGroup | None:
        group = BlockGroup((), one.members | other.members, one.again | other.again)
        if not self._is_convex(group.members):
            return None
        outer = self._outer(group)
        return None if outer is None else replace(group, outer=outer)

    def _set(self, group: BlockGroup) -> None:
        for index in group.members:
            self.group_of[index] = group

    # -- the steps ---------------------------------------------------------------------------

    def _join(self) -> None:
        for index in self.order:
            near_values = [*self._operands(index), *self._values(index)]
            if not self._axes(index) or max(map(self._bytes, near_values)) < LARGE:
                continue
            group = BlockGroup((), frozenset({index}))
            outer = self._outer(group)
            if outer is None:
                continue
            group = replace(group, outer=outer)
            for value in self._operands(index):
                near = self.group_of.get(self._root(value).node)
                if near is not None and near.members.isdisjoint(group.members):
                    group = self._merged(near, group) or group
            self._set(group)

    def _compute_again(self) -> None:
        for index in self.order:
            group = self.group_of.get(index)
            if group is None:
                continue
            for value in self._values(index):
                if self._bytes(value) >= LARGE and value not in self.results:
                    self._spare(value, group)

    def _spare(self, value: Value, maker: BlockGroup) -> None:
        """Have all later readers of `value` compute it again, if they can."""
        readers = self.readers.get(value, [])
        later = [i for i in readers if i not in maker.members]
        if len(later) in (0, len(readers)) or any(i not in self.group_of for i in later):
            return
        groups: list[BlockGroup] = []
        for index in later:
            group = self.group_of[index]
            if any(index in g.members for g in groups):
                continue
            merged = self._merged(groups[-1], group) if groups else None
            groups[-1:] = [merged] if merged else [*groups[-1:], group]
        changed = []
        for group in groups:
            needed = self._recipe(value, maker, group)
            if needed is None:
                return
            grown = replace(group, again=group.again | needed)
            outer = self._outer(grown)
            if outer is None:
                return
            changed.append(replace(grown, outer=outer))
        for group in changed:
            self._set(group)

    def _unite(self) -> None:
        """Merge groups that compute the same values again, so that they compute them once."""
        for index in self.order:
            group = self.group_of.get(index)
            if group is None or not group.again:
                continue
            at = self.position[index]
            near = (self.group_of.get(i) for i in self.order[at + 1 : at + _SPAN])
            for other in dict.fromkeys(near):
                if other and other.again & group.again and other.members != group.members:
                    merged = self._merged(group, other)
                    if merged:
                        self._set(merged)
                        group = merged

    def _recipe(self, value: Value, maker: BlockGroup, reader: BlockGroup) -> frozenset[int] | None:
        """The nodes of `maker` that make `value` from values that live until `reader`; None where
        that is dear."""
        found: set[int] = set()
        first = min(self.position[i] for i in reader.members)
        wanted = [value]
        while wanted:
            made = self._root(wanted.pop())
            if made.node in found or made.node in reader.again:
                continue
            if made.node in maker.members and self._is_cheap(made.node):
                found.add(made.node)
                wanted += self._operands(made.node)
            elif made == value or not self._lives(made, first):
                return None
        return frozenset(found)

    def _is_cheap(self, index: int) -> bool:
        node = self._node(index)
        operands = self._operands(index)
        return bool(operands) and is_cheap(node.op, self.program.type_of(operands[0]))

    def _lives(self, value: Value, until: int) -> bool:
        """True if `value` exists at position `until` anyway."""
        if value.is_input or value in self.results or value.node in self.lasting:
            return True
        late = (i for i in self.readers.get(value, []) if self.position[i] >= until)
        return any(i not in self.group_of or value.node not in self.group_of[i].again for i in late)

    def kept(self) -> set[Value]:
        """The values that some node reads outside of the groups that compute them."""
        found = set(self.results)
        for group in {*self.group_of.values()}:
            nodes = group.members | group.again
            read = {self._root(v) for index in nodes for v in self._operands(index)}
            found |= {value for value in read if value.node not in nodes}
        for index in self.order:
            if index not in self.group_of and not self._is_view(index):
                found |= {self._root(v) for v in self._operands(index)}
        return found

    def _drop(self) -> None:
        """Leave out groups that spare no large value."""
        while True:
            kept = self.kept()
            useless = [
                group
                for group in {*self.group_of.values()}
                if not any(
                    self._bytes(value) >= LARGE and value not in kept
                    for index in group.members | group.again
                    for value in self._values(index)
                )
            ]
            if not useless:
                return
            for group in useless:
                for index in group.members:
                    del self.group_of[index]

    # -- the order ---------------------------------------------------------------------------

    def schedule(self) -> list[Item]:
        """Nodes and groups in an order in which each follows those whose values it reads.

        A view of a value that no reader sees whole is left out.
        """
        self._join()
        self._compute_again()
        self._unite()
        self._drop()
        while True:
            items, waiting = self._sorted()
            if not waiting:
                return items
            # Groups that need each other's results: one is executed node by node.
            group = next(item for item in waiting if not isinstance(item, int))
            for index in group.members:
                del self.group_of[index]

    def _sorted(self) -> tuple[list[Item], list[Item]]:
        kept = self.kept()
        item_of: dict[int, Item] = {}
        for index in self.order:
            if self._is_view(index) and self._hidden(index, kept):
                continue
            item_of[index] = self.group_of.get(index, index)
        items = list(dict.fromkeys(item_of.values()))
        waits: dict[Item, set[Item]] = {item: set() for item in items}
        for item in items:
            nodes = {item} if isinstance(item, int) else item.members | item.again
            for index in nodes:
                for value in self._operands(index):
                    if not value.is_input and self._root(value).node not in nodes:
                        waits[item].add(item_of[value.node])
            waits[item].discard(item)
        for item, needed in self._state_readers(item_of).items():
            waits[item] |= needed - {item}

        def place(item: Item) -> int:
            nodes = [item] if isinstance(item, int) else item.members
            return max(self.position[index] for index in nodes)

        return in_order(waits, place)

    def _hidden(self, index: int, kept: set[Value]) -> bool:
        """True for a view of a value that exists for one block at a time."""
        root = self._root(Value(index, 0))
        return root.node in self.group_of and root not in kept

    def _state_readers(self, item_of: dict[int, Item]) -> dict[Item, set[Item]]:
        """Per optimizer node the items that read its old state: an update in place comes after."""
        found: dict[Item, set[Item]] = {}
        again: dict[int, set[Item]] = {}
        for group in {*self.group_of.values()}:
            for index in group.again:
                again.setdefault(index, set()).add(group)
        for index in self.order:
            if op_spec(self._node(index).op).op_class != "optimizer":
                continue
            for value in self._operands(index):
                if value.is_input and self.program.inputs[value.out].kind == "state":
                    for reader in self.readers.get(value, []):
                        if self.position[reader] < self.position[index]:
                            items = {item_of[reader]} | again.get(reader, set())
                            found.setdefault(item_of[index], set()).update(items)
        return found
