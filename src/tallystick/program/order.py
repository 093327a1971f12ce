"""The nodes of a program in the order in which its outputs need them.

A trace has the order of the model's Python, and some models ask for things in the order of a set of
strings, which differs from process to process. This order depends on the program's graph alone.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.program.ir import Program, Value


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
