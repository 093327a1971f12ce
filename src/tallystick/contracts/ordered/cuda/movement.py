"""Calls of native/cuda/movement.cu, copy.cu and scatter.cu: kernels that move, shape or make data
(NUMERICS 9), and the scatter class (4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tallystick.contracts.ordered.cuda import cuda_kernel
from tallystick.devices.cuda.copies import copy, widened
from tallystick.devices.cuda.launch import (
    Outputs,
    Tensors,
    check_indices,
    constant_bits,
    f64,
    launch_over,
    layout,
    merged,
    outside,
    point,
    pointer,
    space,
    whole,
)
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.device import operand
from tallystick.numerics.operators.common import axis_of, constant, integer, number, text
from tallystick.numerics.operators.movement import slice_of
from tallystick.numerics.types import Attrs, TensorType

_AT_ONCE = 4  # kTakenAtOnce


def _part(x: DeviceTensor, axis: int, start: int, count: int, step: int = 1) -> DeviceTensor:
    """`count` places of x along `axis`."""
    shape, strides = list(x.shape), list(x.strides)
    address = x.address + start * strides[axis]
    shape[axis], strides[axis] = count, strides[axis] * step
    return DeviceTensor(x.device, x.memory, address, x.dtype, shape, strides)


# --- joining and scattering -----------------------------------------------------------------------
@cuda_kernel("aten.slice_scatter", named=True, strided=True, inplace=((0, 0),))
def _slice_scatter(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if out.address != x.address:
        copy(x, out)
    axis, taken, count = slice_of(op, attrs, TensorType(x.dtype, x.shape))
    copy(operand(inputs, 1), _part(out, axis, taken.start, count, taken.step))


@cuda_kernel("aten.cat", named=True, strided=True)
def _cat(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    axis, start = axis_of(op, integer(attrs, "dim"), out.ndim), 0
    for position in range(len(inputs)):
        x = operand(inputs, position)
        copy(x, _part(out, axis, start, x.shape[axis]))
        start += x.shape[axis]


# --- reading by index -----------------------------------------------------------------------------
def _take(
    op: str,
    source: DeviceTensor,
    axis: int,
    steps: Sequence[int],
    index: DeviceTensor,
    index_steps: Sequence[int],
    inner: int,
    out: DeviceTensor,
) -> None:
    """out[…] = source[…] with `index` for the place along `axis`. `steps` and `index_steps` are
    those along the axes of out; `inner` elements of out in a row have the same index."""
    size, step = (source.shape[axis], source.steps[axis]) if source.ndim else (1, 0)
    if not out.size:
        check_indices(op, index, size)
        return
    sizes, (chosen, along) = merged(out.shape, [index_steps, steps])
    width = source.itemsize
    if chosen[-1] == 0:  # neighbours have one index, so they can move together
        moving = [[step, *along]]
        width = widened(width, sizes, moving, (source.address, out.address))
        step, *along = moving[0]
    refusals, why = out.device.refusals, outside(size)
    params = layout(sizes, [chosen, along]) + pointer(index, source, out)
    params += whole(size, step, width // source.itemsize, inner, index.size)
    params += refusals.slots(op, why)
    launch_over(out, f"movement_take_{width}", -(-math.prod(sizes) // _AT_ONCE), params)
    refusals.after(op, why)


@cuda_kernel("aten.gather", named=True, strided=True)
def _gather(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, index, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    steps = [0 if i == axis else step for i, step in enumerate(x.steps)]
    _take(op, x, axis, steps, index, index.steps, 1, out)


@cuda_kernel("aten.index_select", named=True, strided=True)
def _index_select(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, index, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    steps = [0 if i == axis else step for i, step in enumerate(x.steps)]
    index_steps = [index.steps[0] if i == axis else 0 for i in range(x.ndim)]
    _take(op, x, axis, steps, index, index_steps, math.prod(x.shape[axis + 1 :]), out)


@cuda_kernel("aten.embedding", named=True, strided=True)
def _embedding(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    weight, index, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    steps = [*[0] * index.ndim, weight.steps[1]]
    _take(op, weight, 0, steps, index, [*index.steps, 0], weight.shape[1], out)


# --- writing by index (NUMERICS 9.3) --------------------------------------------------------------
@cuda_kernel("aten.scatter.src", named=True, strided=True, inplace=((0, 0),))
def _scatter(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, index, source = (operand(inputs, i) for i in range(3))
    out, device = outputs[0], outputs[0].device
    if out.address != x.address:
        copy(x, out)
    if not index.size:
        return
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    size = x.shape[axis] if x.ndim else 1
    # A number for each destination that the index can reach.
    reached = [size if i == axis else n for i, n in enumerate(index.shape)]
    numbers = [math.prod(reached[i + 1 :]) for i in range(index.ndim)]
    nbytes = max(8 * math.prod(reached), 8)
    last = device.scratch(nbytes)
    device.driver.fill(last, 0, nbytes)

    def along(steps: Sequence[int]) -> list[int]:
        return [0 if i == axis else step for i, step in enumerate(steps)]

    every = [index.steps, source.steps, along(numbers), along(out.steps)]
    sizes, steps = merged(index.shape, every)
    last_step, out_step = (numbers[axis], out.steps[axis]) if x.ndim else (0, 0)
    why = outside(size)
    params = layout(sizes, steps) + pointer(index, source) + whole(last) + pointer(out)
    params += whole(size, last_step, out_step) + device.refusals.slots(op, why)
    launch_over(out, "movement_scatter_last", index.size, params)
    device.refusals.after(op, why)
    launch_over(out, f"movement_scatter_{x.itemsize}", index.size, params)


# --- making ---------------------------------------------------------------------------------------
@cuda_kernel("aten.full", named=True, strided=True)
def _full(op: str, attrs: Attrs, _inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    value = constant(op, "value", number(attrs, "value"), text(attrs, "dtype")).tobytes()
    if not out.size:
        return
    if len(set(value)) == 1:
        out.device.driver.fill(out.address, value[0], out.nbytes)
        return
    sizes, steps = [out.size], [[1]]
    width = min(widened(out.itemsize, sizes, steps, (out.address,)), 8)
    repeated = int.from_bytes(value * (8 // len(value)), "little", signed=True)
    count = out.nbytes // width
    launch_over(out, f"movement_fill_{width}", count, pointer(out) + whole(count, repeated))


@cuda_kernel("aten.arange", named=True, strided=True)
def _arange(_op: str, attrs: Attrs, _inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    start, step = number(attrs, "start"), number(attrs, "step")
    params = pointer(out) + whole(out.size)
    params += whole(int(start), int(step)) if out.dtype == "i64" else f64(start, step)
    launch_over(out, f"movement_arange_{out.dtype}", out.size, params)


@cuda_kernel("aten.tril", "aten.triu", named=True, strided=True)
def _triangle(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    params = space(out.shape, x) + pointer(x, out)
    params += whole(*x.shape[-2:], integer(attrs, "diagonal"), op == "aten.triu")
    launch_over(out, f"movement_triangle_{x.itemsize}", out.size, params)


# --- choices (NUMERICS 9) -------------------------------------------------------------------------
@cuda_kernel("aten.where", strided=True, inplace=((1, 0), (2, 0)))
def _where(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    out = outputs[0]
    point(f"movement_where_{out.itemsize}", out, [operand(inputs, i) for i in range(3)])


@cuda_kernel("aten.masked_fill", named=True, strided=True, inplace=((0, 0),))
def _masked_fill(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, mask = operand(inputs, 0), operand(inputs, 1)
    fill = constant_bits(constant(op, "value", number(attrs, "value"), x.dtype))
    point(f"movement_where_{x.itemsize}", outputs[0], [mask, fill, x])


# --- the scatter class (NUMERICS 4) ---------------------------------------------------------------
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
