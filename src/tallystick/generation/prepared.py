"""Kernels of single nodes, with all that their attributes and shapes decide found beforehand.

A pass for one row has a thousand small calls, and finding a call's numbers takes longer than the
call. These are the calls that the contract's own kernels make (contracts/ordered/cpu).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.reduction import extents
from tallystick.devices.device import Arrays, Outputs, Run
from tallystick.devices.sequence import one_call, one_call_if_contiguous
from tallystick.kernels.loops import FUNCTION, POINTWISE, POWER, call_of, pointwise_operators
from tallystick.numerics.contracts import Contract
from tallystick.numerics.operators.common import axis_of, integer
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs, TensorType
from tallystick.program.ir import Node, Program

_POINTWISE = frozenset(spec.name for spec in pointwise_operators())
_MEANS = frozenset({"aten.mean", "aten.mean.dim"})
# A node's operands are there, and of the types that its declaration gives: said here once.
_LOOPS: dict[int, Any] = {1: _core.ew1, 2: _core.ew2, 3: _core.ew3}
_ELEMENTARY: Any = _core.elementary
_REDUCE_SUM: Any = _core.reduce_sum
_CONCATENATE: Any = np.concatenate
_ROWS: Any = _core.concatenate_rows
_POW: Any = _core.pow


def prepared(program: Program, index: int, contract: Contract) -> Run | None:
    """The kernel of node `index` alone; None where the contract's has nothing to find, or computes
    in a way of its own."""
    node = program.nodes[index]
    types = [program.type_of(v) for v in node.inputs if v is not None]
    floats = all(t.dtype == "f32" for t in (*types, *node.out_types))
    if node.op in contract.own_operators or len(types) < len(node.inputs) or not floats:
        return None
    if node.op in _POINTWISE:
        return _pointwise(node, types)
    if node.op == "aten.cat":
        return _concatenate(node, types)
    return _mean(node, types[0]) if node.op in _MEANS else None


def _concatenate(node: Node, types: Sequence[TensorType]) -> Run:
    axis, axes = axis_of(node.op, integer(node.attrs, "dim"), len(types[0].shape)), types[0].shape
    if axis != len(axes) - 1:
        return lambda _, inputs, outputs: _CONCATENATE(inputs, axis, outputs[0])

    @one_call
    def run(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        if all(x is not None and x.strides[-1] == x.itemsize for x in inputs):
            _ROWS(inputs, outputs[0])
        else:
            _CONCATENATE(inputs, axis, outputs[0])

    return run


def _pointwise(node: Node, types: Sequence[TensorType]) -> Run | None:
    call = call_of(node.op, node.attrs, [t.dtype for t in types])
    if call is None or call.masks:
        return None
    name = call.name
    if call.family == FUNCTION:
        return one_call_if_contiguous(
            lambda _, inputs, outputs: _ELEMENTARY(
                name, np.ascontiguousarray(inputs[0]), outputs[0]
            )
        )
    if call.family not in (POINTWISE, POWER):
        return None
    shown = [np.broadcast_to(np.float32(0), t.shape) for t in types]
    numbers = call.numbers(node.op, node.attrs, shown)
    gathered = call.gathered(node.op, node.attrs, shown)
    if call.family == POWER:
        exponent = gathered[1].reshape(1)
        return one_call_if_contiguous(
            lambda _, inputs, outputs: _POW(np.ascontiguousarray(inputs[0]), exponent, outputs[0])
        )
    loop: Any = _LOOPS[len(call.operands)]
    if call.operands == (0, 1):
        return one_call(
            lambda _, inputs, outputs: loop(name, inputs[0], inputs[1], outputs[0], *numbers)
        )
    if len(call.operands) == 2 and call.operands[0] == 0:
        constant = gathered[1]
        return one_call(
            lambda _, inputs, outputs: loop(name, inputs[0], constant, outputs[0], *numbers)
        )

    @one_call
    def run(_attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        operands = [
            inputs[x] if isinstance(x, int) else found
            for x, found in zip(call.operands, gathered, strict=True)
        ]
        loop(name, *operands, outputs[0], *numbers)

    return run


def _mean(node: Node, type_: TensorType) -> Run | None:
    axes = reduced_axes(node.op, node.attrs, len(type_.shape))
    found = extents(type_.shape, axes)
    if found is None:
        return None
    outer, n, inner = found
    return one_call(
        lambda _, inputs, outputs: _REDUCE_SUM(inputs[0], outer, n, inner, outputs[0], False, True)
    )
