"""Strided layouts, apart from memory: the places of a view's elements inside its storage."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tallystick.devices.device import Device, Tensor
from tallystick.kernels.evaluate import view
from tallystick.numerics.operators.quantised import BLOCK_DTYPES, BLOCKS
from tallystick.numerics.types import DTYPES, Attrs, TensorType

# What a place's elements may be: also whole blocks of a quantised weight (fused.py).
_LAID: dict[str, np.dtype[np.generic]] = {**DTYPES, **BLOCK_DTYPES}


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides: list[int] = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(frozen=True)
class TensorPlace:
    """A tensor inside storage number `storage`: byte offset and strides, shape, dtype name."""

    storage: int
    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """True if the tensor is row-major without gaps. Axes of one element and empty tensors never
        matter."""
        if 0 in self.shape:
            return True
        step = _LAID[self.dtype].itemsize
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != step:
                return False
            step *= size
        return True


def whole(storage: int, type_: TensorType) -> TensorPlace:
    """A contiguous tensor that fills its storage."""
    strides = contiguous_strides(type_.shape, DTYPES[type_.dtype].itemsize)
    return TensorPlace(storage, 0, type_.dtype, type_.shape, strides)


def in_blocks(place: TensorPlace, format_: str) -> TensorPlace:
    """Contiguous rows of bytes as rows of blocks."""
    rows, size = place.shape[0], BLOCKS[format_].size
    shape = (rows, place.shape[1] // size)
    return TensorPlace(place.storage, place.offset, format_, shape, contiguous_strides(shape, size))


def new_tensor(device: Device, type_: TensorType) -> Tensor:
    """An uninitialised C-contiguous tensor of `type_` on `device`. Raises MemoryError."""
    place = whole(0, type_)
    buffer = device.allocate(type_.nbytes)
    return device.view(buffer, 0, place.dtype, place.shape, place.strides)


def reshaped(place: TensorPlace, shape: tuple[int, ...]) -> TensorPlace | None:
    """The same elements under another shape, or None where only a copy can give that."""
    itemsize = _LAID[place.dtype].itemsize
    if place.is_contiguous:
        strides = contiguous_strides(shape, itemsize)
        return TensorPlace(place.storage, place.offset, place.dtype, shape, strides)
    old = [(n, s) for n, s in zip(place.shape, place.strides, strict=True) if n != 1]
    strides_new: list[int] = [0] * len(shape)
    wanted = [i for i, n in enumerate(shape) if n != 1]
    position = 0
    while old:
        # Find the shortest run of old axes and of new axes with equal numbers of elements.
        run, size = [old.pop(0)], 0
        axes = [wanted[position]]
        position += 1
        size = shape[axes[0]]
        total = run[0][0]
        while total != size:
            if total < size:
                run.append(old.pop(0))
                total *= run[-1][0]
            else:
                axes.append(wanted[position])
                position += 1
                size *= shape[axes[-1]]
        for (_, outer), (inner_size, inner) in itertools.pairwise(run):
            if outer != inner * inner_size:
                return None
        step = run[-1][1]
        for axis in reversed(axes):
            strides_new[axis] = step
            step *= shape[axis]
    return TensorPlace(place.storage, place.offset, place.dtype, shape, tuple(strides_new))


def viewed(op: str, attrs: Attrs, place: TensorPlace) -> TensorPlace | None:
    """The layout of a view operator's result over `place`, or None where it must copy."""
    if op == "aten.view":
        size = attrs["size"]
        assert isinstance(size, tuple)
        return reshaped(place, tuple(int(n) for n in size))
    dtype = _LAID[place.dtype]
    reach = sum((n - 1) * s for n, s in zip(place.shape, place.strides, strict=True) if n > 1)
    # No code touches this memory, so the operating system never gives it pages.
    memory = np.empty(reach + dtype.itemsize, dtype=np.uint8)
    array = np.ndarray(place.shape, dtype, memory, 0, place.strides)
    result = view[op](attrs, array)
    if result.size and not np.may_share_memory(result, memory):
        return None
    offset = result.ctypes.data - memory.ctypes.data if result.size else 0
    return TensorPlace(
        place.storage, place.offset + offset, place.dtype, result.shape, tuple(result.strides)
    )
