"""A sum of squares over ranges that several workers have (NUMERICS 3.1, 3.7).

SUM cuts its operand into blocks of 256, and is SUM of the blocks' values. So each worker makes the
values of its blocks, and every worker makes the sum from the values of all: the bits of the clause.
Every contract has the operator from `ordered/1` (13.1, 17.1).
"""

from __future__ import annotations

import numpy as np

from tallystick.devices.device import Device, Tensor
from tallystick.numerics.contracts import ORDERED_1, parse_contract
from tallystick.numerics.types import Attrs, TensorType
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
