"""The driver: the few things that a GPU does for us. Every other module of this room calls it.

`nvidia.py` is the driver of a GPU. The tests have a second one, which runs the same kernel sources
on the host (tests/gpu/emulation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Grid = tuple[int, int, int]


@dataclass
class Traffic:
    """Copies over the bus since the last reset: their number and bytes, by direction."""

    to_device: int = 0
    to_device_bytes: int = 0
    to_host: int = 0
    to_host_bytes: int = 0


class RecordedWork(Protocol):
    """Launches and copies on the device that were recorded once."""

    def replay(self) -> None:
        """Start all of them again, in their order, on the same addresses."""


class CudaDriver(Protocol):
    """One GPU and one queue of work on it. Work runs in the order in which it was given.

    Addresses are those of the device. Raises MemoryError where the device has no memory left,
    MachineFaultError where it failed, DeviceLostError where this process cannot use it any more.
    """

    @property
    def name(self) -> str:
        """The name for people and for reports, such as "cuda:0"."""

    @property
    def architecture(self) -> str:
        """The instruction set that the kernels are compiled for, such as "sm_90"."""

    @property
    def traffic(self) -> Traffic:
        """The copies over the bus."""

    def allocate(self, nbytes: int) -> int:
        """The address of uninitialised memory, divisible by 256."""

    def free(self, address: int) -> None:
        """Free what `allocate` gave, once the work given before has ended."""

    def to_device(self, host: np.ndarray, address: int) -> None:
        """Copy a C-contiguous host array. The array may change when the call has returned."""

    def to_host(self, address: int, host: np.ndarray) -> None:
        """Wait for all work given, then copy into a C-contiguous host array."""

    def move(self, source: int, target: int, nbytes: int) -> None:
        """Copy on the device, between places that do not overlap."""

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set every byte on the device."""

    def launch(self, kernel: str, grid: Grid, threads: int, params: bytes, shared: int = 0) -> None:
        """Start `kernel` in `grid` blocks of `threads` threads; `params` are its slots, `shared`
        the bytes of its dynamic shared memory."""

    def record(self, work: Callable[[], None]) -> RecordedWork:
        """Record the launches, moves and fills of `work`, without running them."""
