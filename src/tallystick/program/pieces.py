"""A piece of a program as a program of its own, whose other values are given to it as inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tallystick.numerics.types import TensorType
from tallystick.program.ir import BATCH_PREFIX, Input, Node, Program, Value, input_value

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
