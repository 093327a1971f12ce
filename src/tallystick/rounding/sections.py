"""Which outputs of a program a step's rounding log has sections for (COMMITMENTS 10.1)."""

from __future__ import annotations

from tallystick.commit.log import BOUNDED, FORMS, Section
from tallystick.program.ir import Node, Program, op_spec

# NUMERICS 13.1
ROUNDED_OPERATORS = frozenset(
    {
        "aten.mm",
        "aten.bmm",
        "aten.addmm",
        "aten.convolution",
        "aten.convolution_backward",
        "aten.sum",
        "aten.sum.dim_IntList",
        "aten.mean",
        "aten.mean.dim",
    }
)


def is_logged(node: Node, output: int, form: int) -> bool:
    """Whether output `output` of `node` has a section (COMMITMENTS 10.1, NUMERICS 13.1, 14.9)."""
    if node.out_types[output].dtype != "f32":
        return False
    if form == BOUNDED:
        return node.op in ROUNDED_OPERATORS
    # Comparisons and masks have bool outputs; what only moves bits is a class of its own.
    return op_spec(node.op).op_class != "move"


def sections_of(program: Program, form: str) -> tuple[Section, ...]:
    """The sections of every step's log under `replay/1` with `form`, "bounded" or "published":
    in the order of nodes and of each node's outputs, empty ones included."""
    code = FORMS[form]
    return tuple(
        Section(index, output, type_.numel, code)
        for index, node in enumerate(program.nodes)
        for output, type_ in enumerate(node.out_types)
        if is_logged(node, output, code)
    )


def operators_of(program: Program, sections: tuple[Section, ...]) -> tuple[str, ...]:
    """The operator of each section, for messages."""
    return tuple(program.nodes[section.node].op for section in sections)


def packed_size(sections: tuple[Section, ...]) -> int:
    """Bytes that the sections' entries take at five to a byte: a published log's size, for
    estimates; a bounded log's size depends on the step."""
    return sum(section.packed_bytes for section in sections)
