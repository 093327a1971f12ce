"""A tensor in the memory of a GPU."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.devices.cuda.nvidia import CudaDriver
from tallystick.numerics.types import DTYPES

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda


class Memory:
    """Memory of the device; free when nothing refers to it any more."""

    def __init__(self, driver: CudaDriver, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address = driver.allocate(nbytes)
        weakref.finalize(self, driver.free, self.address)


class DeviceTensor:
    """A view of device memory: `address` of the first element, `strides` in bytes;
    without them it is C-contiguous."""

    __slots__ = ("address", "device", "dtype", "memory", "shape", "strides")

    def __init__(
        self,
        device: Cuda,
        memory: Memory,
        address: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> None:
        self.device, self.memory, self.address = device, memory, address
        self.dtype, self.shape = dtype, tuple(shape)
        if strides is None:
            places = range(1, self.ndim + 1)
            strides = [self.itemsize * math.prod(self.shape[axis:]) for axis in places]
        self.strides = tuple(strides)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype].itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides in elements."""
        return tuple(stride // self.itemsize for stride in self.strides)

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are row-major without gaps."""
        step = self.itemsize
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != step:
                return False
            step *= size
        return True

    def dense(self, address: int) -> DeviceTensor:
        """A C-contiguous tensor of this type and shape at `address`, in memory that the caller
        keeps."""
        return DeviceTensor(self.device, self.memory, address, self.dtype, self.shape)
