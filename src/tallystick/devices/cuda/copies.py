"""Copies between strided tensors of a GPU (native/cuda/copy.cu)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tallystick.devices.cuda.launch import (
    MOST_BLOCKS,
    THREADS,
    launch_over,
    layout,
    merged,
    pointer,
    whole,
)
from tallystick.devices.cuda.tensor import DeviceTensor

# Bytes that one thread moves at once, widest first.
_WIDTHS = (16, 8, 4)
_AT_ONCE = 4  # kCopiesAtOnce
_TILE = 32  # kTile
# A shorter side leaves most of a tile empty.
_LEAST_SIDE = 8


def widened(
    itemsize: int, sizes: list[int], steps: list[list[int]], addresses: Sequence[int]
) -> int:
    """The bytes of the widest elements as which all operands can be moved; `sizes` and `steps`
    become those of such elements."""
    if all(of[-1] == 1 for of in steps):
        for width in _WIDTHS:
            ratio = width // itemsize
            fits = ratio > 1 and not sizes[-1] % ratio
            fits = fits and not any(address % width for address in addresses)
            if fits and not any(step % ratio for of in steps for step in of[:-1]):
                sizes[-1] //= ratio
                for of in steps:
                    of[:-1] = [step // ratio for step in of[:-1]]
                return width
    return itemsize


def copy(source: DeviceTensor, target: DeviceTensor) -> None:
    """Copy the bits of `source` into `target`, which has its type and shape. Both may have any
    strides; they do not overlap, if they are not the same."""
    if not target.size:
        return
    device = target.device
    if source.is_contiguous and target.is_contiguous:
        if source.address != target.address:
            device.driver.move(source.address, target.address, target.nbytes)
        return
    sizes, steps = merged(target.shape, [source.steps, target.steps])
    turn = _turn(sizes, steps)
    if turn is not None:
        _copy_turned(source, target, sizes, steps, *turn)
        return
    addresses = (source.address, target.address)
    width = widened(source.itemsize, sizes, steps, addresses)
    params = layout(sizes, steps) + pointer(source, target)
    count = -(-math.prod(sizes) // _AT_ONCE)
    launch_over(target, f"copy_strided_{width}", count, params)


def _turn(sizes: Sequence[int], steps: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """The axis along which the source is contiguous, and that of the target, where they differ."""
    source, target = steps
    for column, across in enumerate(target):
        if across != 1 or source[column] in (0, 1) or sizes[column] < _LEAST_SIDE:
            continue
        for row, down in enumerate(source):
            if down == 1 and row != column and sizes[row] >= _LEAST_SIDE:
                return row, column
    return None


def _copy_turned(
    source: DeviceTensor,
    target: DeviceTensor,
    sizes: Sequence[int],
    steps: Sequence[Sequence[int]],
    row: int,
    column: int,
) -> None:
    others = [axis for axis in range(len(sizes)) if axis not in (row, column)]
    space = layout([sizes[a] for a in others], [[of[a] for a in others] for of in steps])
    if not others:
        space = layout([1], [[0], [0]])
    tiles = math.prod(sizes[a] for a in others)
    tiles *= -(-sizes[row] // _TILE) * -(-sizes[column] // _TILE)
    params = space + pointer(source, target) + whole(sizes[row], sizes[column])
    params += whole(steps[0][column], steps[1][row])
    grid = (min(tiles, MOST_BLOCKS), 1, 1)
    target.device.launch(f"copy_turned_{source.itemsize}", grid, THREADS, params)
