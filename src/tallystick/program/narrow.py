"""Conversions of stored weights that no memory is made for: products alone read them.

A product's kernel may widen bf16 and f16 while it reads them (NUMERICS 1.14, 10.7), and quantised
weights in blocks (NUMERICS 19). Where all that reads a conversion, through views, is such an
operand, the product gets the weight as it is stored. Blocks lie in rows, which are the columns of a
product's operand: so they are read through one transposition.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.devices.kernel import Kernel
from tallystick.kernels.views import view
from tallystick.numerics.operators.quantised import DEQUANTIZE
from tallystick.numerics.types import STORED
from tallystick.program.ir import Node, Program, Value

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
