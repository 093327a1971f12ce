"""What the engine prepares of a model once, for every pass: weights in the order in which products
read them, and kernels of single nodes with all that their attributes and shapes decide.

A model's file has a weight row by row, and a product wants columns side by side: it would transpose
all weights again in every pass. So the engine holds each weight of a product once more, as panels
(native/include/tallystick/gemm_panels.hpp). Of a quantised weight the bytes of its blocks are moved
likewise (quantised_panels.hpp). The file's own pages are not read afterwards, and are the system's
to take back. Panels move elements and change no bit.

A pass for one row has a thousand small calls, and finding a call's numbers takes longer than the
call. These are the calls that the contract's own kernels make (contracts/ordered/cpu).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.reduction import extents
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Arrays, Outputs, Run, operand
from tallystick.devices.sequence import one_call, one_call_if_contiguous
from tallystick.kernels.evaluate import view
from tallystick.kernels.loops import FUNCTION, POINTWISE, POWER, call_of, pointwise_operators
from tallystick.numerics.contracts import Contract
from tallystick.numerics.operators.common import axis_of, integer, number
from tallystick.numerics.operators.quantised import DEQUANTIZE, block_format
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs, TensorType
from tallystick.program.fused import CONVERSION
from tallystick.program.ir import Node, Program, Value

COLUMNS = 32  # of a panel
# Memory is taken in pieces of this many bytes, for which the system gives large pages.
_PIECE = 64 << 20
_ALIGNMENT = 64
_CONVERSIONS = (CONVERSION, DEQUANTIZE)
_WEIGHT = {"aten.mm": 1, "aten.addmm": 2}  # where the weight stands
# The operands are there, and of the types that the declaration gives.
_MM: Any = _core.mm_panels
_MM_STORED: Any = _core.mm_panels_stored
_MM_QUANTISED: Any = _core.mm_panels_quantised


class Panels:
    """The panels of one engine's weights: every program of it reads the same ones."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], np.ndarray] = {}
        self._piece: np.ndarray = np.empty(0, np.uint8)

    def product(self, program: Program, index: int, contract: Contract) -> Run | None:
        """The kernel of node `index`; None where it is no product with a whole weight."""
        node = program.nodes[index]
        at = _WEIGHT.get(node.op)
        if at is None or node.op in contract.own_operators or not _adds_plainly(node):
            return None
        weight = node.inputs[at]
        if weight is None or program.type_of(weight).shape[1] < COLUMNS:
            return None
        converted = _converted(program, weight)
        if converted is None:
            return None
        ordinary, call = CPU.kernels(contract)[node.op].run, None

        @one_call
        def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
            nonlocal call
            if call is None:
                array = operand(inputs, at)
                # A conversion that the product does not make lies in memory that others use too.
                temporary = converted and array.dtype == np.float32
                call = ordinary if temporary else self._call(array, at)
            call(attrs, inputs, outputs)

        return run

    def _call(self, weight: np.ndarray, at: int) -> Run:
        panels, is_f16 = self.of(weight), weight.dtype == np.float16
        if weight.dtype == np.float32:
            if at == 1:
                return lambda _, given, out: _MM(given[0], panels, out[0], None)
            return lambda _, given, out: _MM(given[1], panels, out[0], given[0])
        if name := block_format(weight.dtype):
            if at == 1:
                return lambda _, given, out: _MM_QUANTISED(name, given[0], panels, out[0], None)
            return lambda _, given, out: _MM_QUANTISED(name, given[1], panels, out[0], given[0])
        if at == 1:
            return lambda _, given, out: _MM_STORED(given[0], panels, out[0], None, is_f16)
        return lambda _, given, out: _MM_STORED(given[1], panels, out[0], given[0], is_f16)

    def of(self, weight: np.ndarray) -> np.ndarray:
        """The panels of weight[K, N]: [panels, K, COLUMNS], those of 16 bits as bits; of a weight
        whose elements are blocks [panels, K, bytes of a block, COLUMNS]."""
        key = (weight.__array_interface__["data"][0], weight.shape, weight.strides, weight.dtype)
        if key not in self._made:
            self._made[key] = self._panels(weight)
        return self._made[key]

    def _panels(self, weight: np.ndarray) -> np.ndarray:
        terms, columns = weight.shape
        count = -(-columns // COLUMNS)
        if name := block_format(weight.dtype):
            panels = self._room((count, terms, weight.itemsize, COLUMNS), np.dtype(np.uint8))
            _core.make_panels_quantised(name, weight.T.view(np.uint8), panels)
            return panels
        bits = weight if weight.dtype == np.float32 else weight.view(np.uint16)
        panels = self._room((count, terms, COLUMNS), bits.dtype)
        make: Any = _core.make_panels if bits.itemsize == 4 else _core.make_panels_stored
        make(bits, panels)
        return panels

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        size = math.prod(shape) * dtype.itemsize
        if self._piece.size < size:
            raw = np.empty(max(size, _PIECE) + _ALIGNMENT, np.uint8)
            self._piece = raw[-raw.ctypes.data % _ALIGNMENT :]
        taken = self._piece[:size]
        self._piece = self._piece[-(-size // _ALIGNMENT) * _ALIGNMENT :]
        return taken.view(dtype).reshape(shape)


def _adds_plainly(node: Node) -> bool:
    """True if a product adds its third operand, if any, as it is."""
    factors = ("alpha", "beta") if node.op == "aten.addmm" else ()
    return all(number(node.attrs, name) == 1 for name in factors)


def _converted(program: Program, value: Value) -> bool | None:
    """Whether there is a conversion between a weight and this value, which has all its elements;
    None where the value is of something else."""
    found = False
    while not value.is_input:
        node = program.nodes[value.node]
        if node.op not in view and node.op not in _CONVERSIONS:
            return None
        found = found or node.op in _CONVERSIONS
        read = node.inputs[0]
        assert read is not None
        value = read
    return found if program.inputs[value.out].kind == "state" else None


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
