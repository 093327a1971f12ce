"""Conversions of stored weights that no memory is made for: products alone read them.

A product's kernel may widen bf16 and f16 while it reads them (NUMERICS 1.14, 10.7). Where all that
reads a conversion, through views, is such an operand, the product gets the weight as it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.devices.kernel import Kernel
from tallystick.kernels.views import view
from tallystick.numerics.types import STORED
from tallystick.program.ir import Program

CONVERSION = "aten._to_copy"


def narrow(program: Program, kernels: Mapping[str, Kernel]) -> set[int]:
    """The `_to_copy` nodes whose value is their operand's place, read by kernels that widen."""
    # Nodes with a value that someone reads as float32.
    wide = {value.node for _, value in program.outputs}
    found: set[int] = set()
    for index in reversed(range(len(program.nodes))):
        node = program.nodes[index]
        operands = [value for value in node.inputs if value is not None]
        if node.op in view:
            if index in wide:
                wide.update(value.node for value in operands)
        elif node.op == CONVERSION and program.type_of(operands[0]).dtype in STORED:
            if index not in wide:
                found.add(index)
        else:
            widens = kernels[node.op].widens if node.op in kernels else ()
            read = enumerate(node.inputs)
            wide.update(v.node for at, v in read if v is not None and at not in widens)
    return found
