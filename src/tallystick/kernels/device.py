"""What a device is: where tensors lie, and which kernels compute on them.

The executor, the state, the taps and the node tracer hold a device's tensors and know nothing else
of them; they read bytes on the host only where a byte is needed. So each difference between
devices stands in one class, and its kernels in one room (`kernels/cpu`, `kernels/stock`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from tallystick.kernels.table import Kernel
    from tallystick.numerics.contracts import Contract

# What `view` gives: for the processor a numpy array, for other devices whatever they make.
Tensor = Any
# What `allocate` gives.
Buffer = Any
ALIGNMENT = 64


class Device(Protocol):
    """A device. Its methods are called inside of an execution context (context.py)."""

    @property
    def name(self) -> str:
        """For people and for reports: "cpu"."""

    def kernels(self, contract: Contract) -> Mapping[str, Kernel]:
        """Operator name to kernel under `contract`; views have none (views.py).

        Under a contract that keeps a log, the kernels of an empty log (NUMERICS 14.5). An operator
        that is not in the mapping has no kernel on this device.
        """

    def prepare(self, contract: Contract) -> None:
        """Called once a step, before any kernel of `contract`.

        Raises EnvironmentRefusedError where kernels that the contract needs are not admissible
        (NUMERICS 14.3), or compute in another floating-point environment (1.7).
        """

    def allocate(self, nbytes: int) -> Buffer:
        """Uninitialised memory, at an address divisible by ALIGNMENT. Raises MemoryError."""

    def free(self, buffer: Buffer) -> None:
        """The buffer is used no more."""

    def view(
        self,
        base: Buffer | Tensor,
        offset: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> Tensor:
        """A tensor inside `base`, a buffer or a C-contiguous tensor: `offset` and `strides` in
        bytes, `dtype` by its name in NUMERICS 1.1."""

    def copy(self, source: Tensor, target: Tensor) -> None:
        """The bits of `source`, of any strides, into `target`, C-contiguous, of one type."""

    def write(self, host: np.ndarray, target: Tensor) -> None:
        """The bits of a host array into a tensor of its type."""

    def host(self, tensor: Tensor) -> np.ndarray:
        """The tensor's elements on the host: its own memory where it lies there, else a copy."""

    def digest(self, tensor: Tensor) -> bytes:
        """The tensor digest (COMMITMENTS 3.5)."""

    def problem(self, tensor: Tensor, dtype: str, shape: Sequence[int]) -> str:
        """Why `tensor` is not a C-contiguous tensor of this type on this device; empty if it is."""

    def writable(self, tensor: Tensor) -> bool:
        """Whether the tensor may be written to."""
