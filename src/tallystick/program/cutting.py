"""Ranges of elements, one for each worker: which groups of a tail are cut into them
(docs/adr/0025), and a sum of squares over them (NUMERICS 3.1, 3.7).

A group (owners.py) is cut where each element of its values depends on the same element of others
and on values of rank 0 only. The one exception is a sum of squares. Ranges begin at multiples of
`UNIT` elements.

SUM cuts its operand into blocks of 256, and is SUM of the blocks' values. So each worker makes the
values of its blocks, and every worker makes the sum from the values of all: the bits of the clause.
Every contract has the operator from `ordered/1` (13.1, 17.1).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tallystick.devices.device import Device, Tensor
from tallystick.numerics.contracts import ORDERED_1, parse_contract
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import Attrs, TensorType
from tallystick.program.ir import Node, Program, Value
from tallystick.program.layout import new_tensor

BLOCK = 256  # elements; NUMERICS 3.1
# Blocks whose squares are in memory at once: 1 MiB of them.
_AT_ONCE = 1024


def block_count(elements: int) -> int:
    """The number of blocks that this many elements make."""
    return -(-elements // BLOCK)


class BlockSums:
    """The kernels of `device` for values of blocks, and for their sum. Called inside of an
    execution context."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kernels = device.kernels(parse_contract(ORDERED_1))

    def values(self, x: Tensor) -> np.ndarray:
        """The values of the blocks of x_i·x_i, f32[block_count(n)]. `x`, C-contiguous f32[n],
        begins where a block of the whole tensor begins; n is a multiple of 256, or ends it."""
        (n,) = x.shape
        found = np.empty(block_count(n), np.float32)
        whole = n // BLOCK
        for at in range(0, whole, _AT_ONCE):
            count = min(_AT_ONCE, whole - at)
            found[at : at + count] = self._rows(x, at * BLOCK, count, BLOCK)
        if n % BLOCK:
            found[whole:] = self._rows(x, whole * BLOCK, 1, n % BLOCK)
        return found

    def _rows(self, x: Tensor, start: int, rows: int, width: int) -> np.ndarray:
        device, shape = self._device, (rows, width)
        part = device.view(x, 4 * start, "f32", shape, (4 * width, 4))
        squares = new_tensor(device, TensorType("f32", shape))
        sums = new_tensor(device, TensorType("f32", (rows,)))
        self._kernels["aten.mul.Tensor"].run({}, [part, part], [squares])
        along: Attrs = {"dim": (1,), "keepdim": False}
        self._kernels["aten.sum.dim_IntList"].run(along, [squares], [sums])
        return device.host(sums)

    def total(self, values: np.ndarray) -> np.ndarray:
        """SUM over a tensor whose blocks, all of them in order, have these values; f32[]."""
        device = self._device
        given = new_tensor(device, TensorType("f32", values.shape))
        device.write(values, given)
        total = new_tensor(device, TensorType("f32", ()))
        self._kernels["aten.sum"].run({}, [given], [total])
        return np.array(device.host(total)).reshape(())


# 512 elements of f32 are one leaf of a tensor's tree (COMMITMENTS 3.4), and two blocks of SUM
# (NUMERICS 3.1).
UNIT = 512
# A tensor whose ranges would be smaller stays whole: each range is a place in each worker's
# messages and a call of each kernel, and a tensor so small moves neither memory nor time.
LEAST_BYTES = 64 << 10

SUM_SQUARES = "tallystick.sum_squares"
# Every operator that a cut group may have besides SUM_SQUARES, with its clause of NUMERICS. Each
# makes element i of its outputs from element i of its operands, and from operands of rank 0. A
# property test holds that ranges get the bits of the whole (tests/unit/program/test_cutting.py).
ELEMENTWISE = {
    "aten.abs": "10.3",
    "aten.add.Scalar": "10.2",
    "aten.add.Tensor": "10.2",
    "aten.clamp": "10.4",
    "aten.div.Scalar": "10.2",
    "aten.div.Tensor": "10.2",
    "aten.maximum": "10.4",
    "aten.minimum": "10.4",
    "aten.mul.Scalar": "10.2",
    "aten.mul.Tensor": "10.2",
    "aten.neg": "10.3",
    "aten.reciprocal": "10.3",
    "aten.rsqrt": "5",
    "aten.sqrt": "10.3",
    "aten.square": "10.3",
    "aten.sub.Scalar": "10.2",
    "aten.sub.Tensor": "10.2",
    "tallystick.adam_step": "11.3",
    "tallystick.adamw_step": "11.2",
    FOLD: "10.12",
    "tallystick.sgd_step": "11.4",
}


def is_large(type_: TensorType, workers: int) -> bool:
    """Whether a tensor of this type is worth a range for each worker."""
    return type_.dtype == "f32" and type_.nbytes >= workers * LEAST_BYTES


def ranges(elements: int, workers: int) -> tuple[range, ...]:
    """The elements, row-major, of each worker: consecutive, from multiples of UNIT, and as many
    units as any other's or one more."""
    units, found, at = -(-elements // UNIT), [], 0
    for rank in range(workers):
        end = at + units // workers + (rank < units % workers)
        found.append(range(min(elements, at * UNIT), min(elements, end * UNIT)))
        at = end
    return tuple(found)


def may_be_cut(program: Program, index: int, common: Collection[int]) -> bool:
    """Whether node `index` of the tail computes on ranges what it does on the whole. `common` are
    the nodes that every worker executes, on whole tensors."""
    node = program.nodes[index]
    if node.op == FOLD:
        return True
    if node.op != SUM_SQUARES and node.op not in ELEMENTWISE:
        return False
    type_ = range_type(program, node)
    carried = {slot for slot, _ in program.carried}

    def fits(value: Value | None) -> bool:
        if value is None or not program.type_of(value).shape:
            return True
        if program.type_of(value) != type_:
            return False
        if value.is_input:
            spec = program.inputs[value.out]
            return spec.kind == "state" and spec.name not in carried
        return value.node >= program.section and value.node not in common

    made = [] if node.op == SUM_SQUARES else node.out_types
    return all(map(fits, node.inputs)) and all(out == type_ for out in made)


def range_type(program: Program, node: Node) -> TensorType:
    """The type of the tensors that a node of a group computes on: its results', or a reduction's
    operand's."""
    if node.op == SUM_SQUARES:
        (x,) = node.inputs
        assert x is not None
        return program.type_of(x)
    return node.out_types[0]
