"""Writes a program node by node, and infers types as it grows. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
