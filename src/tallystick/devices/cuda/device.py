"""A GPU as a device: its tensors are `DeviceTensor`s, its kernels those of native/cuda."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from threading import RLock
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from tallystick.devices.cuda.copies import copy
from tallystick.devices.cuda.hashing import Hashing
from tallystick.devices.cuda.nvidia import CudaDriver, Grid
from tallystick.devices.cuda.recording import DeviceSequence, Refusals
from tallystick.devices.cuda.tensor import DeviceTensor, Memory
from tallystick.devices.device import Device
from tallystick.devices.sequence import Call, Sequenced
from tallystick.numerics.contracts import Contract
from tallystick.numerics.types import DTYPE_NAMES, DTYPES

if TYPE_CHECKING:
    from tallystick.products.cuda.cublas import CublasProducts

_ALIGNED = 256  # bytes, of places in the scratch memory


class Cuda(Device):
    """The GPU behind `driver`. Kernels read no element on the host."""

    kind = "cuda"
    # One launch for a whole tensor costs less than one for each of its blocks.
    takes_blocks = False
    # It has one queue of work: a digest would wait behind the step, and the step behind it.
    hashes_beside = False

    def __init__(self, driver: CudaDriver) -> None:
        super().__init__()
        self.driver = driver
        self.name, self.architecture = driver.name, driver.architecture
        self.refusals = Refusals(driver)
        self.scratch_memory: Memory | None = None
        self._sequences: WeakSet[DeviceSequence] = WeakSet()
        self._hashing = Hashing(self)
        # The contracts whose kernels have been looked at here.
        self.probed: set[Contract] = set()
        # The library that multiplies in binary64 (rounded/1, exact/1); None: native/cuda does.
        self.products: CublasProducts | None = None
        self.searched = False
        self._turn = RLock()

    def alone(self) -> AbstractContextManager[object]:
        return self._turn

    def sequence(self, calls: Sequence[Call]) -> Sequenced:
        made = DeviceSequence(self, calls)
        self._sequences.add(made)
        return made

    # -- for kernels -------------------------------------------------------------------------------

    def launch(self, kernel: str, grid: Grid, threads: int, params: bytes, shared: int = 0) -> None:
        """Start a kernel (nvidia.py)."""
        self.driver.launch(kernel, grid, threads, params, shared)

    def scratch(self, nbytes: int) -> int:
        """The address of memory for one call of a kernel; the next call gets the same memory."""
        if self.scratch_memory is None or self.scratch_memory.nbytes < nbytes:
            # The former is free before the larger one is taken: a recording that holds its address
            # is made again.
            for sequence in self._sequences:
                sequence.forget()
            self.scratch_memory = None
            self.scratch_memory = Memory(self.driver, nbytes)
        return self.scratch_memory.address

    def places(self, sizes: Sequence[int]) -> list[int]:
        """The addresses of places in the scratch memory; `sizes` are their bytes."""
        starts = [0, *accumulate(-(-size // _ALIGNED) * _ALIGNED for size in sizes)]
        base = self.scratch(max(starts.pop(), _ALIGNED))
        return [base + start for start in starts]

    def contiguous(self, dtype: str, shape: Sequence[int]) -> DeviceTensor:
        """A new uninitialised C-contiguous tensor."""
        memory = self.allocate(DTYPES[dtype].itemsize * math.prod(shape))
        return DeviceTensor(self, memory, memory.address, dtype, shape)

    def from_host(self, array: np.ndarray) -> DeviceTensor:
        """A new C-contiguous tensor with the elements of a host array."""
        tensor = self.contiguous(DTYPE_NAMES[array.dtype], array.shape)
        self.write(array, tensor)
        return tensor

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        return Memory(self.driver, max(nbytes, 1))

    def view(
        self,
        base: Memory | DeviceTensor,
        offset: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> DeviceTensor:
        memory = base.memory if isinstance(base, DeviceTensor) else base
        return DeviceTensor(self, memory, base.address + offset, dtype, shape, strides)

    def copy(self, source: DeviceTensor, target: DeviceTensor) -> None:
        copy(source, target)

    def write(self, host: np.ndarray, target: DeviceTensor) -> None:
        if target.size:
            array = np.ascontiguousarray(host, DTYPES[target.dtype])
            self.driver.to_device(array, target.address)

    def host(self, tensor: DeviceTensor) -> np.ndarray:
        found: np.ndarray = np.empty(tensor.shape, DTYPES[tensor.dtype])
        if not tensor.size:
            return found
        if tensor.is_contiguous:
            self.driver.to_host(tensor.address, found)
            return found
        whole = self.contiguous(tensor.dtype, tensor.shape)
        copy(tensor, whole)
        self.driver.to_host(whole.address, found)
        return found

    def digests(self, tensors: Sequence[DeviceTensor]) -> list[bytes]:
        return self._hashing.digests(tensors)

    def problem(self, tensor: object, dtype: str, shape: Sequence[int]) -> str:
        if not isinstance(tensor, DeviceTensor):
            return f"it is a {type(tensor).__name__}, not a tensor of {self.name}"
        if tensor.device is not self:
            return f"it lies on {tensor.device.name}"
        if tensor.dtype != dtype:
            return f"it must be {dtype}, got {tensor.dtype}"
        if tensor.shape != tuple(shape) or not tensor.is_contiguous:
            return f"it must be C-contiguous {dtype}{list(shape)}, got {list(tensor.shape)}"
        return ""
