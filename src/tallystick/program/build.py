"""Writes a program node by node, and infers types as it grows; or takes a piece out of one, as a
program whose other values are given to it as inputs. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tallystick.errors import UsageError
from tallystick.numerics.contracts import ORDERED_1
from tallystick.numerics.registry import check_attrs
from tallystick.numerics.types import Attrs, TensorType
from tallystick.program.ir import (
    BATCH_PREFIX,
    COMMIT,
    RNG_INPUT,
    RNG_TYPE,
    SCALAR_PREFIX,
    Input,
    Node,
    Program,
    Value,
    input_value,
    op_spec,
)


class Builder:
    """Collects inputs and nodes; `finish` gives a program in canonical input order.

    Inputs are declared before the first node. Values handed out stay valid until `finish`.
    """

    def __init__(self, contract: str = ORDERED_1) -> None:
        self.contract = contract
        self._inputs: list[Input] = []
        self._by_name: dict[str, Value] = {}
        self._nodes: list[Node] = []
        self._section = 0

    def state(self, name: str, type_: TensorType) -> Value:
        """Declare state slot `name`."""
        return self._declare(Input("state", name, type_))

    def batch(self, name: str, type_: TensorType) -> Value:
        """Declare batch tensor `name` (without prefix)."""
        return self._declare(Input("batch", BATCH_PREFIX + name, type_))

    def scalar(self, name: str) -> Value:
        """Per-step scalar `name` (without prefix), f64[]: declared at its first use."""
        known = self._by_name.get(SCALAR_PREFIX + name)
        if known is not None:
            return known
        return self._declare(Input("scalar", SCALAR_PREFIX + name, TensorType("f64", ())))

    def rng(self) -> Value:
        """The random key input, declared at its first use (NUMERICS 8.3)."""
        known = self._by_name.get(RNG_INPUT)
        return known if known is not None else self._declare(Input("rng", RNG_INPUT, RNG_TYPE))

    def input(self, name: str) -> Value:
        """A declared input by its full name; `rng` is declared when first asked for."""
        return self.rng() if name == RNG_INPUT else self._by_name[name]

    def _declare(self, spec: Input) -> Value:
        if spec.name in self._by_name:
            raise UsageError(f"Program input {spec.name} is declared twice.")
        value = input_value(len(self._inputs))
        self._inputs.append(spec)
        self._by_name[spec.name] = value
        return value

    def type_of(self, value: Value) -> TensorType:
        """The type of a value made by this builder."""
        if value.is_input:
            return self._inputs[value.out].type
        return self._nodes[value.node].out_types[value.out]

    def attrs_of(self, value: Value) -> Attrs:
        """The attributes of the node that made `value`."""
        return self._nodes[value.node].attrs

    def node_of(self, value: Value) -> Node | None:
        """The node that made `value`, or None for an input."""
        return None if value.is_input else self._nodes[value.node]

    def emit(self, op: str, inputs: Sequence[Value | None], **attrs: object) -> list[Value]:
        """Append a node; its outputs. Raises UsageError where attributes or types do not fit."""
        spec = op_spec(op, self.contract)
        typed: Attrs = dict(sorted(attrs.items()))  # type: ignore[arg-type]
        check_attrs(spec, typed)
        types = tuple(None if v is None else self.type_of(v) for v in inputs)
        out_types = spec.infer(typed, types)
        self._nodes.append(Node(op, tuple(inputs), typed, out_types))
        return [Value(len(self._nodes) - 1, i) for i in range(len(out_types))]

    def one(self, op: str, inputs: Sequence[Value | None], **attrs: object) -> Value:
        """`emit` for operators with exactly one output."""
        (value,) = self.emit(op, inputs, **attrs)
        return value

    def copy(self, program: Program, inputs: Sequence[Value]) -> Callable[[Value], Value]:
        """Append the nodes of `program` but COMMIT, over `inputs` in the places of its inputs; what
        stands here for a value of it. Of a program with micro-batches the section ends here too."""
        made: list[list[Value]] = []

        def moved(value: Value) -> Value:
            return inputs[value.out] if value.is_input else made[value.node][value.out]

        for number, node in enumerate(program.nodes):
            if node.op != COMMIT:
                operands = [None if v is None else moved(v) for v in node.inputs]
                made.append(self.emit(node.op, operands, **node.attrs))
            if number + 1 == program.section:
                self.end_section()
        return moved

    def end_section(self) -> None:
        """The nodes so far are the section of a program with micro-batches, the next ones its tail
        (PROGRAM 6.2)."""
        self._section = len(self._nodes)

    def commit(self, next_state: Mapping[str, Value]) -> None:
        """Append the commit node over every next-state slot in name order (NUMERICS 12.1)."""
        self.emit(COMMIT, [next_state[name] for name in sorted(next_state)])

    def finish(
        self, outputs: Mapping[str, Value], carried: Mapping[str, Value] | None = None
    ) -> Program:
        """The program, its inputs renumbered into bytewise name order (PROGRAM 1.2).

        `carried` are the values of the section that the next micro-batch reads as these slots."""
        order = sorted(range(len(self._inputs)), key=lambda i: self._inputs[i].name)
        place = {old: new for new, old in enumerate(order)}

        def moved(value: Value) -> Value:
            return input_value(place[value.out]) if value.is_input else value

        nodes = tuple(
            Node(
                node.op,
                tuple(None if v is None else moved(v) for v in node.inputs),
                node.attrs,
                node.out_types,
            )
            for node in self._nodes
        )
        return Program(
            self.contract,
            tuple(self._inputs[i] for i in order),
            nodes,
            tuple((name, moved(outputs[name])) for name in sorted(outputs)),
            self._section,
            tuple((name, moved(value)) for name, value in sorted((carried or {}).items())),
        )


# Where a piece finds a value: a node of the piece, or an input.
Place = Callable[[Value], Value | Input]


def value_name(value: Value) -> str:
    """The name of a node's value where it is an input or an output of a piece. No name of a text
    has this sign (PROGRAM 2.3)."""
    return f"%{value.node}.{value.out}"


def slot_name(slot: str) -> str:
    """The name of a carried slot as an input of the section; no name of a text either."""
    return f"@{slot}"


def given(name: str, type_: TensorType) -> Input:
    """An input of a piece for a value that its caller has."""
    return Input("batch", BATCH_PREFIX + name, type_)


def piece(
    contract: str,
    nodes: Iterable[Node],
    outputs: Iterable[tuple[str, Value]],
    place: Place,
    always: Iterable[Input] = (),
) -> Program:
    """A program of `nodes`, whose values `place` gives. It has the inputs `always`, and those that
    it reads."""
    nodes, outputs = list(nodes), list(outputs)
    read = [v for node in nodes for v in node.inputs if v is not None] + [v for _, v in outputs]
    inputs = {spec.name: spec for spec in always}
    inputs |= {spec.name: spec for spec in map(place, read) if isinstance(spec, Input)}
    names = sorted(inputs)
    index = {name: i for i, name in enumerate(names)}

    def here(value: Value) -> Value:
        found = place(value)
        return input_value(index[found.name]) if isinstance(found, Input) else found

    made = tuple(
        Node(n.op, tuple(None if v is None else here(v) for v in n.inputs), n.attrs, n.out_types)
        for n in nodes
    )
    named = tuple(sorted((name, here(value)) for name, value in outputs))
    return Program(contract, tuple(inputs[name] for name in names), made, named)
