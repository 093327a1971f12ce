"""Tensors cut into bundles of bounded size, so that no exchange needs memory for a whole one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tallystick.devices.device import Device, Tensor
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.program.layout import new_tensor

# Bytes of one tensor, or of many, in a bundle. A receiver has two for each other worker. The first
# goes with messages that are sent anyway, so a smaller bundle costs small models an exchange.
BUNDLE_BYTES = 4 << 20


class TensorSegment(NamedTuple):
    """Elements [start, stop) of the tensor called `key`, in row-major order."""

    key: Any
    type: TensorType
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return (self.stop - self.start) * DTYPES[self.type.dtype].itemsize


def bundles(
    tensors: Iterable[tuple[Any, TensorType, range]], most: int = BUNDLE_BYTES
) -> list[list[TensorSegment]]:
    """Elements of tensors, (key, type of the tensor, elements), in order, in bundles of at most
    `most` bytes each."""
    found: list[list[TensorSegment]] = []
    room = 0
    for key, type_, elements in tensors:
        size, start = DTYPES[type_.dtype].itemsize, elements.start
        while start < elements.stop:
            if room < size:
                found.append([])
                room = most
            stop = min(elements.stop, start + room // size)
            found[-1].append(TensorSegment(key, type_, start, stop))
            room -= found[-1][-1].nbytes
            start = stop
    return found


def part_of(device: Device, tensor: Tensor, segment: TensorSegment, first: int = 0) -> Tensor:
    """The segment of a C-contiguous tensor, as a view of rank 1. `tensor` has the elements from
    number `first` on."""
    dtype = segment.type.dtype
    size = DTYPES[dtype].itemsize
    shape = (segment.stop - segment.start,)
    return device.view(tensor, (segment.start - first) * size, dtype, shape, (size,))


def on_device(device: Device, data: np.ndarray, dtype: str) -> Tensor:
    """Bytes, u8[n], as a tensor of rank 1 on the device: of their own memory where they lie
    there."""
    host = data.view(DTYPES[dtype])
    if not device.problem(host, dtype, host.shape):
        return host
    made = new_tensor(device, TensorType(dtype, host.shape))
    device.write(host, made)
    return made
