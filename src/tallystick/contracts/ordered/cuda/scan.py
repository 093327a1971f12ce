"""Calls of native/cuda/scan.cu and rank.cu: cumulative sums and places (NUMERICS 3.8, 3.9)."""

from __future__ import annotations

import math

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import launch_over, over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import operand
from tallystick.numerics.operators.common import axis_of, flag, integer
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import Room

_MOST_CHUNK = 1024  # kMostChunk of rank.cu
NARROW = 1 << 32  # rows of fewer elements have narrow entries in rank.cu


def _along(op: str, attrs: Attrs, x: DeviceTensor) -> tuple[int, int, int]:
    """Rows, their elements and how many rows lie side by side, along `dim`; x has elements."""
    if not x.ndim:
        return 1, 1, 1
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    return x.size // x.shape[axis], x.shape[axis], math.prod(x.shape[axis + 1 :])


# --- cumulative sum (3.8) -------------------------------------------------------------------------
@cuda_kernel("aten.cumsum", named=True)
def _cumsum(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, y = operand(inputs, 0), outputs[0]
    if not x.size:
        return
    rows, n, inner = _along(op, attrs, x)
    params = pointer(x, y) + whole(rows, n, inner)
    if inner > 1:
        launch_over(y, "scan_columns", rows, params)
    else:
        y.device.launch("scan_rows", over(rows, 128), 128, params)


# --- places (3.9) ---------------------------------------------------------------------------------
@cuda_kernel("tallystick.rank", named=True)
def _rank(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, places = operand(inputs, 0), outputs[0]
    if not x.size:
        return
    rows, n, inner = _along(op, attrs, x)
    is_narrow = x.dtype == "f32" and n < NARROW
    entry, nbytes = ("narrow", 8) if is_narrow else ("broad", 16)
    chunk = min(_MOST_CHUNK, max(32, 1 << (n - 1).bit_length()))
    chunks, room = -(-n // chunk), Room(x.device)
    # Entries, twice: a pass reads one and writes the other.
    both = [room.take(nbytes * x.size if chunks > 1 else 0) for _ in range(2)]
    source, target = (room.at(place) for place in both)
    params = pointer(x) + whole(source) + pointer(places) + whole(rows, n, inner, chunks)
    params += whole(flag(attrs, "descending"))
    grid = (min(rows * chunks, 1 << 20), 1, 1)
    x.device.launch(f"rank_chunks_{entry}_{x.dtype}", grid, chunk, params)
    width = chunk
    while width < n:
        is_last = 2 * width >= n
        params = whole(source, 0 if is_last else target) + pointer(places)
        params += whole(rows, n, inner, width)
        launch_over(places, f"rank_merge_{entry}", x.size, params)
        source, target, width = target, source, 2 * width
