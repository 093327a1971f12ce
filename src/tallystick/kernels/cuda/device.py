"""A GPU as a device: its tensors are `DeviceTensor`s, its kernels those of native/cuda."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from threading import RLock

import numpy as np

from tallystick.errors import RefusedOperandsError
from tallystick.kernels.cuda.contracts import kernels_of
from tallystick.kernels.cuda.copies import copy
from tallystick.kernels.cuda.driver import Driver, Grid, Recorded
from tallystick.kernels.cuda.hashing import Hashing
from tallystick.kernels.cuda.probe import check_device
from tallystick.kernels.cuda.products import Products, admitted
from tallystick.kernels.cuda.tensor import DeviceTensor, Memory
from tallystick.kernels.sequence import Call, CallFailedError, Sequenced
from tallystick.kernels.table import Kernel
from tallystick.numerics.contracts import Contract
from tallystick.numerics.types import DTYPES

_NO_REFUSAL = (1 << 64) - 1


class Refusals:
    """The word in which refusing calls leave their number (device.hpp, Refusal).

    Inside of a sequence the word is read once, at its end. Outside of one every refusing call
    reads it.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._memory = Memory(driver, 8)
        self._clear()
        self.collected: list[tuple[int, str, str]] | None = None
        self.position = 0  # of the call under way in its sequence

    def _clear(self) -> None:
        self._driver.fill(self._memory.address, 0xFF, 8)

    def read(self) -> tuple[int, int] | None:
        """The number of the first call that refused since the last reading, and the position of
        its first bad element; None where none has."""
        word: np.ndarray = np.empty(1, np.uint64)
        self._driver.to_host(self._memory.address, word)
        if int(word[0]) == _NO_REFUSAL:
            return None
        self._clear()
        return int(word[0]) >> 32, int(word[0]) & 0xFFFFFFFF

    def slots(self, op: str, why: str) -> bytes:
        """The slots Refusal of the next launch. The kernel's caller calls `after` when it has
        started it."""
        number = 0
        if self.collected is not None:
            number = len(self.collected)
            self.collected.append((self.position, op, why))
        return self._memory.address.to_bytes(8, "little") + number.to_bytes(8, "little")

    def after(self, op: str, why: str) -> None:
        """Raises RefusedOperandsError at once, outside of a sequence."""
        if self.collected is None:
            found = self.read()
            if found is not None:
                raise RefusedOperandsError(op, f"{why} (at position {found[1]}).")


class _Sequence:
    """The first run starts every call by itself, which also loads kernels and gets scratch memory.
    The second records them; later runs start the recording."""

    def __init__(self, device: Cuda, calls: Sequence[Call]) -> None:
        self._device, self._calls = device, calls
        self._runs = 0
        self._recorded: Recorded | None = None
        self._refusing: list[tuple[int, str, str]] = []
        self._scratch: Memory | None = None

    def run(self) -> None:
        if not self._calls:
            return
        device, self._runs = self._device, self._runs + 1
        if self._runs == 1:
            self._start_all()
        else:
            if self._recorded is None:
                self._recorded = device.driver.record(self._start_all)
            self._recorded.replay()
        if not self._refusing:
            return
        found = device.refusals.read()
        if found is not None:
            position, op, why = self._refusing[found[0]]
            error = RefusedOperandsError(op, f"{why} (at position {found[1]}).")
            raise CallFailedError(position) from error

    def _start_all(self) -> None:
        refusals = self._device.refusals
        refusals.collected = []
        try:
            for position, (run, attrs, inputs, outputs) in enumerate(self._calls):
                refusals.position = position
                try:
                    run(attrs, inputs, outputs)
                except Exception as error:
                    raise CallFailedError(position) from error
            self._refusing = refusals.collected
        finally:
            refusals.collected = None
            # The recording holds this address.
            self._scratch = self._device.scratch_memory


class Cuda:
    """The GPU behind `driver`. Kernels read no element on the host."""

    # One launch for a whole tensor costs less than one for each of its blocks.
    takes_blocks = False

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.refusals = Refusals(driver)
        self.scratch_memory: Memory | None = None
        self._hashing = Hashing(self)
        self._probed: set[Contract] = set()
        # The library that multiplies in binary64 for rounded operators; None: native/cuda does.
        self.products: Products | None = None
        self._searched = False
        self._turn = RLock()

    @property
    def name(self) -> str:
        return self.driver.name

    @property
    def architecture(self) -> str:
        return self.driver.architecture

    def kernels(self, contract: Contract) -> Mapping[str, Kernel]:
        return kernels_of(contract)

    def prepare(self, contract: Contract) -> None:
        """Probe the device, once for each contract."""
        if contract.rounded_operators and not self._searched:
            self.products, self._searched = admitted(self.driver), True
        if contract not in self._probed:
            check_device(self, contract)
            self._probed.add(contract)

    def alone(self) -> AbstractContextManager[object]:
        return self._turn

    def sequence(self, calls: Sequence[Call]) -> Sequenced:
        return _Sequence(self, calls)

    # -- for kernels -------------------------------------------------------------------------------

    def launch(self, kernel: str, grid: Grid, threads: int, params: bytes, shared: int = 0) -> None:
        """Start a kernel (driver.py)."""
        self.driver.launch(kernel, grid, threads, params, shared)

    def scratch(self, nbytes: int) -> int:
        """The address of memory for one call of a kernel; the next call gets the same memory."""
        if self.scratch_memory is None or self.scratch_memory.nbytes < nbytes:
            self.scratch_memory = Memory(self.driver, nbytes)
        return self.scratch_memory.address

    def contiguous(self, dtype: str, shape: Sequence[int]) -> DeviceTensor:
        """A new uninitialised C-contiguous tensor."""
        strides = [DTYPES[dtype].itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape))]
        memory = self.allocate(DTYPES[dtype].itemsize * math.prod(shape))
        return DeviceTensor(self, memory, memory.address, dtype, shape, strides)

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Memory:
        return Memory(self.driver, max(nbytes, 1))

    def free(self, buffer: Memory) -> None:
        pass  # it frees itself when its last tensor is gone

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

    def digest(self, tensor: DeviceTensor) -> bytes:
        return self.digests([tensor])[0]

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

    def writable(self, tensor: DeviceTensor) -> bool:
        return True
