"""An engine program, cut into the parts that the engine executes one by one.

- What no input but the weights decides is computed once, where it is small.
- The *body* is computed for every row of a pass. It ends with the last layer's attention.
- The *head* is all that follows, up to the logits. It is computed for those rows only whose next
  token is drawn: of a prompt, for the last one.

A part is a program of the same nodes (program/build.py), so a cut changes no bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.devices.cpu import CPU
from tallystick.errors import UsageError
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import parse_contract
from tallystick.program.build import given, piece, value_name
from tallystick.program.fused import VALUES, Attention, ending, narrow
from tallystick.program.ir import Input, Program, Value, op_spec
from tallystick.program.plan import CONSTANT_BYTES

LOGITS = "logits"


@dataclass(frozen=True)
class ProgramParts:
    """The parts. `fixed` has as outputs, by name, the state slots that `body` and `head` have
    beside the weights. `crossing` are the names of the values that go from the body to the head.
    """

    fixed: Program
    body: Program
    head: Program
    crossing: tuple[str, ...]


def attentions(program: Program) -> list[Attention]:
    """The attention of each layer, in order. Raises UsageError where a node of it stands apart from
    the others, or another node reads what is between them."""
    found = []
    for index, node in enumerate(program.nodes):
        if node.op != VALUES:
            continue
        attention = ending(program, index)
        if attention is None:
            raise UsageError("A node of this program takes no weights of scores where it should.")
        found.append(attention)
    inner = {a.scores for a in found} | {a.weights for a in found}
    reads = [v.node for node in program.nodes for v in node.inputs if v is not None]
    reads += [v.node for _, v in program.outputs]
    if sum(read in inner for read in reads) != len(inner) or len(inner) != 2 * len(found):
        raise UsageError("A node of this program reads the inside of an attention.")
    return found


def _following(program: Program, start: int) -> set[int]:
    """The nodes that depend on node `start`."""
    found = {start}
    for index, node in enumerate(program.nodes):
        if any(v is not None and v.node in found for v in node.inputs):
            found.add(index)
    return found - {start}


def _needed(program: Program, ends: set[int], within: set[int]) -> set[int]:
    """The nodes `ends`, and those of `within` on which they depend."""
    found, waiting = set(ends), sorted(ends)
    while waiting:
        read = {v.node for v in program.nodes[waiting.pop()].inputs if v is not None}
        new = read & within - found
        found |= new
        waiting += sorted(new)
    return found


def _settled(program: Program) -> tuple[set[int], set[int]]:
    """The nodes whose values the weights alone decide, and that are small enough for slots of their
    own; and those that are views of weights, or conversions that products make while they read,
    which cost nothing."""
    spared = narrow(program, CPU.kernels(parse_contract(program.contract)))
    weights = {i for i, spec in enumerate(program.inputs) if spec.kind == "state"}
    fixed: set[int] = set()
    views: set[int] = set()
    for index, node in enumerate(program.nodes):
        read = [v for v in node.inputs if v is not None]
        if any(v.out not in weights if v.is_input else v.node not in fixed | views for v in read):
            continue
        is_view = node.op in view or index in spared
        if is_view and all(v.is_input or v.node in views for v in read):
            views.add(index)
        elif sum(t.nbytes for t in node.out_types) <= CONSTANT_BYTES and (
            not op_spec(node.op, program.contract).is_random
        ):
            fixed.add(index)
    return fixed, views


def cut(program: Program) -> ProgramParts:
    """The parts of an engine program, whose one output is `logits`. Raises UsageError, as
    `attentions`."""
    layers = attentions(program)
    if not layers or LOGITS not in program.output_values:
        raise UsageError("An engine program has attention, and ends with logits.")
    fixed, views = _settled(program)
    after = _following(program, layers[-1].values)
    before = set(range(len(program.nodes))) - fixed - after

    def crossing(made: set[int], readers: set[int]) -> list[Value]:
        read = {v for i in readers for v in program.nodes[i].inputs if v is not None}
        return sorted(v for v in read if v.node in made)

    # Each part makes the views of weights that it reads.
    from_body = crossing(before - views, after)
    head = _needed(program, after, views)
    body = _needed(program, {v.node for v in from_body}, before)
    from_fixed = crossing(fixed, body | head)
    needed = _needed(program, {v.node for v in from_fixed}, fixed | views)

    def part(nodes: set[int], outputs: Iterable[tuple[str, Value]]) -> Program:
        order = {index: at for at, index in enumerate(sorted(nodes))}

        def place(value: Value) -> Value | Input:
            if value.is_input:
                return program.inputs[value.out]
            if value.node in order:
                return Value(order[value.node], value.out)
            type_ = program.type_of(value)
            if value.node in fixed:
                return Input("state", value_name(value), type_)
            return given(value_name(value), type_)

        return piece(program.contract, [program.nodes[i] for i in order], outputs, place)

    def named(values: Iterable[Value]) -> list[tuple[str, Value]]:
        return [(value_name(value), value) for value in values]

    return ProgramParts(
        part(needed, named(from_fixed)),
        part(body, named(from_body)),
        part(head, [(LOGITS, program.output_values[LOGITS])]),
        tuple(map(value_name, from_body)),
    )
