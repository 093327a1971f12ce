"""Nodes that have no memory of their own, because a kernel of what reads them does their work.

*Attention.* Scores and weights have an element for each pair of places. Where only the attention
itself reads them, a kernel computes all three nodes for some queries at a time, and no array of all
pairs exists (NUMERICS 18). A step that is shown executes every node (`PlanOptions.blocks`).

*Conversions of stored weights.* A product's kernel may widen bf16 and f16 while it reads them
(NUMERICS 1.14, 10.7), and quantised weights in blocks (NUMERICS 19). Where all that reads a
conversion, through views, is such an operand, the product gets the weight as it is stored. Blocks
lie in rows, which are the columns of a product's operand: so they are read through one
transposition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tallystick.devices.device import Kernel
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.operators.quantised import DEQUANTIZE
from tallystick.numerics.types import STORED, Attrs
from tallystick.program.ir import Node, Program, Value

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


CONVERSION = "aten._to_copy"
_PERMUTE, _SLICE, _VIEW = "aten.permute", "aten.slice", "aten.view"


def narrow(program: Program, kernels: Mapping[str, Kernel]) -> set[int]:
    """The nodes that convert a weight, and whose value is their operand's place, read by kernels
    that widen."""
    # Nodes with a value that someone reads as float32; and those with one that someone reads
    # otherwise than the columns of a product's operand.
    wide = {value.node for _, value in program.outputs}
    cut: set[int] = set()
    found: set[int] = set()
    for index in reversed(range(len(program.nodes))):
        node = program.nodes[index]
        read = {value.node for value in node.inputs if value is not None}
        if node.op in view:
            if index in wide:
                wide |= read
            if index in cut or not _transposes(node):
                cut |= read
            cut |= {x for x in read if x >= 0 and program.nodes[x].op in view}
        elif _is_conversion(program, node):
            if index not in wide and not (index in cut and node.op == DEQUANTIZE):
                found.add(index)
        else:
            widens = kernels[node.op].widens if node.op in kernels else ()
            operands = enumerate(node.inputs)
            wide.update(v.node for at, v in operands if v is not None and at not in widens)
            cut |= {x for x in read if x >= 0 and not _transposes(program.nodes[x])}
    return found


def _is_whole(program: Program, weight: Value) -> bool:
    """Whether a matrix in blocks is an input, or one of several that an input has."""
    while not weight.is_input:
        node = program.nodes[weight.node]
        read = node.inputs[0] if node.op in (_SLICE, _VIEW) else None
        if read is None or program.type_of(read).shape[-2:] != program.type_of(weight).shape[-2:]:
            return False
        weight = read
    return True


def _transposes(node: Node) -> bool:
    return node.op == _PERMUTE and node.attrs["dims"] == (1, 0)


def _is_conversion(program: Program, node: Node) -> bool:
    weight = node.inputs[0] if node.inputs else None
    if weight is None:
        return False
    type_ = program.type_of(weight)
    if node.op == DEQUANTIZE:
        return len(type_.shape) == 2 and _is_whole(program, weight)
    return node.op == CONVERSION and type_.dtype in STORED
