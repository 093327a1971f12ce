"""Calls of native/cuda/scatter.cu: the scatter class (NUMERICS 4)."""

from __future__ import annotations

import math

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import launch_over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors, check_indices
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import axis_of, integer
from tallystick.numerics.types import Attrs

_DIGIT_BITS, _DIGITS = 8, 256  # kDigits
_PART = 4096  # kPart
_MOST_SOURCES = (1 << 32) - 1  # their numbers are uint32_t
_WIDE, _WIDE_BYTES = 4, 16  # floats that a thread adds side by side


def _add_rows(
    op: str,
    index: DeviceTensor,
    size: int,
    x: DeviceTensor | None,
    source: DeviceTensor,
    out: DeviceTensor,
    outer: int,
    inner: int,
    skip: int,
) -> None:
    """out[a, index[i], c] += source[a, i, c], i ascending. out begins as x, or as +0.

    All are C-contiguous: out and x [outer, size, inner], source [outer, sources, inner].
    """
    device, sources = out.device, index.size
    if sources > _MOST_SOURCES:
        raise MemoryError(f"{op}: {sources} indices are more than this device's kernel can sort")
    blocks = -(-sources // _PART)
    bounds_bytes, order_bytes = 8 * max(size, 1), -(-4 * sources // 8) * 8
    bounds = device.scratch(bounds_bytes + 2 * order_bytes + 4 * _DIGITS * blocks)
    orders = [bounds + bounds_bytes, bounds + bounds_bytes + order_bytes]
    table = orders[1] + order_bytes
    refusal = check_indices(op, index, size)

    def sort(order: int, to: int, shift: int) -> bytes:
        return pointer(index) + whole(sources, size, order, to, table, shift)

    if not out.size:
        return
    device.driver.fill(bounds, 0, bounds_bytes)
    order = 0
    if sources:
        grid = (blocks, 1, 1)
        for shift in range(0, max((size - 1).bit_length(), 1), _DIGIT_BITS):
            to = orders[0] if order != orders[0] else orders[1]
            device.launch("scatter_count", grid, _DIGITS, sort(order, to, shift))
            scan = whole(table, _DIGITS * blocks)
            device.launch("scatter_scan", (1, 1, 1), _DIGITS, scan)
            device.launch("scatter_place", grid, _DIGITS, sort(order, to, shift))
            order = to
        launch_over(out, "scatter_bound", sources, sort(order, 0, 0) + whole(bounds))
    tensors = [t for t in (x, source, out) if t is not None]
    wide = not inner % _WIDE and not any(t.address % _WIDE_BYTES for t in tensors)
    count = _WIDE if wide else 1
    params = pointer(x, source, out) + whole(order, bounds, outer, size, inner, sources, skip)
    launch_over(out, f"scatter_sum_{count}", out.size // count, params + refusal)


@cuda_kernel("aten.embedding_dense_backward", named=True)
def _embedding_backward(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    grad, index, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    rows, padding = integer(attrs, "num_weights"), integer(attrs, "padding_idx")
    _add_rows(op, index, rows, None, grad, out, 1, out.shape[1], padding)


@cuda_kernel("aten.index_add", named=True, inplace=((0, 0),))
def _index_add(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, index, source = (operand(inputs, i) for i in range(3))
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    _add_rows(op, index, x.shape[axis], x, source, outputs[0], outer, inner, -1)
