"""Attentions that are executed by one call, because nobody reads the inside of them.

Scores and weights have an element for each pair of places. Where only the attention itself reads
them, a kernel computes all three nodes for some queries at a time, and no array of all pairs exists
(NUMERICS 18). A step that is shown executes every node (`PlanOptions.blocks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tallystick.devices.kernel import Kernel
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.types import Attrs
from tallystick.program.ir import Program, Value

SCORES, WEIGHTS, VALUES = (f"tallystick.attention_{n}" for n in ("scores", "weights", "values"))


@dataclass(frozen=True)
class Attention:
    """The nodes of an attention, by their numbers in a program."""

    scores: int
    weights: int
    values: int


def made_by(program: Program, value: Value | None, op: str) -> int | None:
    """The node of operator `op` that made `value`; None where an input or another operator did."""
    if value is None or value.is_input or program.nodes[value.node].op != op:
        return None
    return value.node


def ending(program: Program, values: int) -> Attention | None:
    """The attention whose last node is `values`; None where its values take other weights."""
    weights = made_by(program, program.nodes[values].inputs[0], WEIGHTS)
    if weights is None:
        return None
    scores = made_by(program, program.nodes[weights].inputs[0], SCORES)
    return None if scores is None else Attention(scores, weights, values)


def closed(
    program: Program, kernels: Mapping[str, Kernel], apart: Collection[int]
) -> dict[int, Attention]:
    """The attentions that one of `kernels` may compute whole, by each of their nodes; none has a
    node of `apart`. A contract that computes one of the three in its own way has none."""
    if VALUES not in kernels or kernels[VALUES].attends is None:
        return {}
    if not parse_contract(program.contract).own_operators.isdisjoint((SCORES, WEIGHTS, VALUES)):
        return {}
    reads = Counter(v for node in program.nodes for v in node.inputs if v is not None)
    reads.update(v for _, v in program.outputs)
    found = {}
    for index, node in enumerate(program.nodes):
        attention = ending(program, index) if node.op == VALUES else None
        if attention is None:
            continue
        if any(reads[Value(i, 0)] != 1 for i in (attention.scores, attention.weights)):
            continue
        nodes = (attention.scores, attention.weights, index)
        seen = [_seen(program.nodes[i].attrs) for i in nodes]
        if seen[0] == seen[1] == seen[2] and not any(i in apart for i in nodes):
            found.update(dict.fromkeys(nodes, attention))
    return found


def _seen(attrs: Attrs) -> list[object]:
    """Which keys a query sees (NUMERICS 18.2)."""
    return [attrs[name] for name in ("causal", "first", "window")]


def operands(program: Program, attention: Attention) -> list[Value | None]:
    """q, k, v, slopes and sinks, as `Kernel.attends` takes them."""
    (q, k, *slopes), (_, *sinks), (_, v) = (
        program.nodes[i].inputs for i in (attention.scores, attention.weights, attention.values)
    )
    return [q, k, v, *(slopes or [None]), *(sinks or [None])]
