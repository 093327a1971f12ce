"""The size of a step's work, from its program alone: an estimate for clocks (PROTOCOL 11.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tallystick.numerics.types import TensorType
from tallystick.program.expand import kinds, times
from tallystick.program.ir import Node, Program

# Terms that the slowest machine worth counting on computes in a second: one core, no vectors. A
# machine with two cores and AVX2 does a hundred times as many.
SLOWEST_TERMS = 1_000_000_000
_FIXED_MS = 50  # a step's calls from Python, files and hashing of small states

Types = Sequence[TensorType]


def _filter(weight: TensorType) -> int:
    """Terms of one output element of a convolution."""
    return weight.numel // max(1, weight.shape[0])


# Operator of class dot -> terms, from the types of its operands and outputs.
TERMS_OF: dict[str, Callable[[Types, Types], int]] = {
    "aten.mm": lambda a, out: out[0].numel * a[0].shape[-1],
    "aten.addmm": lambda a, out: out[0].numel * a[1].shape[-1],
    "aten.bmm": lambda a, out: out[0].numel * a[0].shape[-1],
    "aten.convolution": lambda a, out: out[0].numel * _filter(a[1]),
    "aten.convolution_backward": lambda a, out: 2 * a[0].numel * _filter(a[2]),
}


def node_terms(program: Program, node: Node) -> int:
    operands = [program.type_of(v) for v in node.inputs if v is not None]
    elements = sum(t.numel for t in (*operands, *node.out_types))
    product = TERMS_OF.get(node.op)
    return elements if product is None else elements + product(operands, node.out_types)


def step_terms(program: Program) -> int:
    """Products and elements that a step of `program` computes, about."""
    return sum(times(program, n) * node_terms(program, program.nodes[n]) for n in kinds(program))


def step_milliseconds(program: Program) -> int:
    """The time of a step on a slow machine: an honest party's is shorter."""
    return _FIXED_MS + -(-1000 * step_terms(program) // SLOWEST_TERMS)
