"""Canonical form: equal subexpressions merged, dead nodes and inputs dropped, nodes in an order
that the graph alone decides (PROGRAM 3.5).

Two captures of one model give the same form, with any torch version and any tracing device. Node
order is the order of first appearance. Draw ids are attributes, so no rewriting can move
randomness.

A trace has the order of the model's Python, and some models ask for things in the order of a set of
strings, which differs from process to process. For these there is the order in which a program's
outputs need its nodes.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.numerics.types import AttrValue
from tallystick.program.ir import COMMIT, Node, Program, Value, input_value, op_spec


def _needed_order(program: Program) -> list[int]:
    """Node numbers: before each node its operands, in their order, and what these need."""
    placed: list[int] = []
    done: set[int] = set()
    for _, output in program.outputs:
        waiting = [] if output.is_input else [output.node]
        while waiting:
            node = waiting[-1]
            if node in done:
                waiting.pop()
                continue
            operands = (v.node for v in program.nodes[node].inputs if v and not v.is_input)
            missing = [operand for operand in operands if operand not in done]
            if missing:
                waiting.extend(reversed(missing))
            else:
                done.add(node)
                placed.append(waiting.pop())
    return placed


def in_order_of_need(program: Program) -> Program:
    """The program with its nodes in that order, without those that no output needs.

    It must have no next state."""
    order = _needed_order(program)
    place = {old: new for new, old in enumerate(order)}

    def moved(value: Value) -> Value:
        return value if value.is_input else Value(place[value.node], value.out)

    nodes = tuple(
        replace(node, inputs=tuple(None if v is None else moved(v) for v in node.inputs))
        for node in (program.nodes[i] for i in order)
    )
    outputs = tuple((name, moved(value)) for name, value in program.outputs)
    return replace(program, nodes=nodes, outputs=outputs)


_Key = tuple[object, ...]


def _attr_key(value: AttrValue) -> object:
    # Python finds 0.0 == -0.0, 1 == 1.0 == True, and nan != nan; canonical text does not.
    if isinstance(value, tuple):
        return ("tuple", tuple(_attr_key(v) for v in value))
    if isinstance(value, float):
        return ("float", value.hex())
    return (type(value).__name__, value)


def _key(node: Node) -> _Key:
    attrs = tuple((name, _attr_key(node.attrs[name])) for name in sorted(node.attrs))
    return (node.op, node.inputs, attrs)


def merge_equal(program: Program) -> Program:
    """Every node equal to an earlier one replaced by it; random nodes never (NUMERICS 8.2), and the
    tail's by no node of the section, which stands for one in each micro-batch (PROGRAM 6)."""
    nodes: list[Node] = []
    first: dict[_Key, int] = {}
    place: list[int] = []
    section = 0

    def moved(value: Value) -> Value:
        return value if value.is_input else Value(place[value.node], value.out)

    for index, old in enumerate(program.nodes):
        if index == program.section:
            first.clear()
            section = len(nodes)
        inputs = tuple(None if v is None else moved(v) for v in old.inputs)
        node = Node(old.op, inputs, old.attrs, old.out_types)
        mergeable = not op_spec(node.op).is_random and node.op != COMMIT
        known = first.get(_key(node)) if mergeable else None
        if known is not None:
            place.append(known)
            continue
        if mergeable:
            first[_key(node)] = len(nodes)
        place.append(len(nodes))
        nodes.append(node)
    if program.section == len(program.nodes):
        section = len(nodes)
    outputs = tuple((name, moved(value)) for name, value in program.outputs)
    carried = tuple((name, moved(value)) for name, value in program.carried)
    return Program(program.contract, program.inputs, tuple(nodes), outputs, section, carried)


def drop_dead(program: Program) -> Program:
    """Only nodes that an output, a carried slot or the commit node needs, and `rng` only if a node
    reads it.

    State, batch and scalar inputs stay: they are the program's interface.
    """
    live = [node.op == COMMIT for node in program.nodes]
    for _, value in (*program.outputs, *program.carried):
        if not value.is_input:
            live[value.node] = True
    used_inputs: set[int] = set()
    for index in range(len(program.nodes) - 1, -1, -1):
        if not live[index]:
            continue
        for operand in program.nodes[index].inputs:
            if operand is None:
                continue
            if operand.is_input:
                used_inputs.add(operand.out)
            else:
                live[operand.node] = True
    kept_inputs = [
        i for i, spec in enumerate(program.inputs) if spec.kind != "rng" or i in used_inputs
    ]
    input_place = {old: new for new, old in enumerate(kept_inputs)}
    kept = [i for i, alive in enumerate(live) if alive]
    place = {old: new for new, old in enumerate(kept)}

    def moved(value: Value) -> Value:
        if value.is_input:
            return input_value(input_place[value.out])
        return Value(place[value.node], value.out)

    nodes = tuple(
        Node(
            node.op,
            tuple(None if v is None else moved(v) for v in node.inputs),
            node.attrs,
            node.out_types,
        )
        for node in (program.nodes[i] for i in kept)
    )
    outputs = tuple((name, moved(value)) for name, value in program.outputs)
    carried = tuple((name, moved(value)) for name, value in program.carried)
    inputs = tuple(program.inputs[i] for i in kept_inputs)
    section = sum(live[: program.section])
    return Program(program.contract, inputs, nodes, outputs, section, carried)


def canonicalize(program: Program) -> Program:
    """The canonical form; applying it twice changes nothing."""
    return drop_dead(merge_equal(program))
