"""The device: the place of tensors, and the kernels that compute on them.

The executor, the state, the taps and the node tracer hold a device's tensors and know nothing more
about them. They read bytes on the host only where they need a byte. So one class states each
difference between devices. A contract says which kernels compute on a device (`contracts`).

A *kernel* computes one operator on a device. What kernels share is here too: operands of a call,
masks as bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np

from tallystick import _core
from tallystick.commit.tensor import tensor_digest
from tallystick.devices.sequence import Call, RecordedCalls, Sequenced
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.numerics.types import Attrs

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda
    from tallystick.numerics.contracts import Contract

# The result of `view`: a numpy array on the processor, a type of its own on any other device.
Tensor = Any
T = TypeVar("T")  # the arrays or tensors of a device
# Over attributes, inputs (None where an optional one is absent) and C-contiguous outputs.
Run = Callable[[Attrs, Sequence[Tensor | None], Sequence[Tensor]], None]


@dataclass(frozen=True)
class Kernel:
    """A function that computes one operator on a device, and its demands on memory.

    `run` fills the outputs. A `strided` kernel takes operands of any strides. For any other kernel
    the caller makes the operands C-contiguous. `inplace` lists (input, output) pairs that may share
    storage. `widens` are the operands that may be bf16 or f16 in the place of their float32 values.
    `attends`, of attention's last operator, computes all three from q, k, v, slopes and sinks, with
    the attributes of the first (NUMERICS 18).
    """

    run: Run
    strided: bool = False
    inplace: tuple[tuple[int, int], ...] = ()
    widens: tuple[int, ...] = ()
    attends: Run | None = None


def entry(_name: str, run: Run, **marks: Any) -> Kernel:
    """A table's entry, of a decorated function and its marks (numerics/attachments.py)."""
    return Kernel(run, **marks)


def replaced(
    ordinary: Mapping[str, Kernel], own: frozenset[str], run_of: Callable[[str, Run], Run]
) -> Mapping[str, Kernel]:
    """`ordinary` kernels, with other functions for the operators `own` among them: `run_of` gives
    each one, of its name and the ordinary function. It raises where there is none, so that a
    contract's operator never keeps the ordinary kernel silently. They take float32 alone, and none
    computes a whole attention: `attends` has the ordinary bits."""
    made = {op: run_of(op, ordinary[op].run) for op in own & ordinary.keys()}
    changed = {
        op: replace(ordinary[op], run=run, widens=(), attends=None) for op, run in made.items()
    }
    return {**ordinary, **changed}


def operand(inputs: Sequence[T | None], position: int) -> T:
    """The tensor at `position`; the declaration has refused absent ones."""
    x = inputs[position]
    if x is None:
        raise UsageError(f"Operand {position} is missing.")
    return x


def optional(inputs: Sequence[T | None], position: int) -> T | None:
    """The tensor at `position`; None where there is none."""
    return inputs[position] if position < len(inputs) else None


def padded(tensors: Sequence[Any], count: int) -> list[Any]:
    """The tensors of a call in their places, `count` of them; None for each that is not there."""
    return [*tensors, *[None] * (count - len(tensors))]


def wanted(outputs: Sequence[T], mask: Sequence[bool]) -> list[T | None]:
    """The outputs in their places; None for those masked off."""
    remaining = iter(outputs)
    return [next(remaining) if on else None for on in mask]


def refused_operands(error: BaseException) -> bool:
    """True if `error`, which a kernel raised, says that the kernel refuses its operands' values.

    Such an execution stops on every machine. Any other error of a kernel (MemoryError, an
    interrupt, a fault of this program) says nothing about the run.
    """
    return isinstance(error, RefusedOperandsError | _core.OperandError)


Arrays = Sequence[np.ndarray | None]
Outputs = Sequence[np.ndarray]


def as_bytes(mask: np.ndarray) -> np.ndarray:
    """A bool array as bytes 0 and 1, without a copy: kernels read masks in this form."""
    return mask.view(np.uint8)


def copy(x: np.ndarray, out: np.ndarray) -> None:
    """Copy the bits of x, of any strides, into C-contiguous `out` of the same dtype and shape."""
    kind = {1: np.uint8, 2: np.uint16}.get(x.itemsize)  # of the others the core knows the dtypes
    _core.copy_strided(*((x, out) if kind is None else (x.view(kind), out.view(kind))))


# The result of `allocate`.
Buffer = Any
ALIGNMENT = 64
_KEPT_TABLES = 64


class Device(ABC):
    """A device. Its methods are called inside of an execution context (context.py).

    What most devices have in common is here: calls run one by one, threads need no turns, memory is
    free with its last reference, and digests are those of the bytes on the host.
    """

    # For people and for reports, such as "cpu".
    name: str
    # "cpu", "cuda" or "torch": by what a contract knows its kernels for a device.
    kind: str
    # The instruction set ("sm_90"); empty on the processor, where the core has a choice of them.
    architecture: str
    # True if nodes along large values are executed for some rows at a time (program/grouping.py).
    takes_blocks: bool
    # True if a second thread may call `digest` and `host` while this device executes a step, and
    # `host` gives a tensor's own memory. Elsewhere a checkpoint is hashed and stored between steps.
    hashes_beside: bool

    def __init__(self) -> None:
        # Bounded, since the numbers of a contract are another party's.
        self._kernels = lru_cache(maxsize=_KEPT_TABLES)(self._made)

    def _made(self, contract: Contract) -> Mapping[str, Kernel]:
        return contract.kernels(self)

    def alone(self) -> AbstractContextManager[object]:
        """Held by a thread that computes on the device. Blocks may be nested.

        A GPU has one queue of work and one scratch memory, so threads take turns there.
        """
        return nullcontext()

    def sequence(self, calls: Sequence[Call]) -> Sequenced:
        """Prepare calls of this device's kernels and of `copy`, which run many times."""
        return RecordedCalls(calls)

    def kernels(self, contract: Contract) -> Mapping[str, Kernel]:
        """Operator name to kernel under `contract`; views have none (views.py).

        Under a contract that keeps a log, these are the kernels of an empty log (NUMERICS 14.5). An
        operator that is not in the mapping has no kernel on this device.
        """
        return self._kernels(contract)

    def prepare(self, contract: Contract) -> None:
        """Prepare for a step. The executor calls this once a step, before any kernel of `contract`.

        Raises EnvironmentRefusedError where kernels that the contract needs are not admissible
        (NUMERICS 14.3), or compute in another floating-point environment (1.7).
        """
        contract.prepare(self)

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Allocate uninitialised memory, at an address divisible by ALIGNMENT. Raises
        MemoryError."""

    def free(self, buffer: Buffer) -> None:  # noqa: B027 (most have nothing to do)
        """Free the buffer. The caller does not use it afterwards.

        Only the memory of one call is freed so. The memory of an executor or a state is free when
        none of its tensors is left, which the device counts.
        """

    @abstractmethod
    def view(
        self,
        base: Buffer | Tensor,
        offset: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> Tensor:
        """A tensor inside `base`, which is a buffer or a C-contiguous tensor. `offset` and
        `strides` are in bytes; `dtype` is a name of NUMERICS 1.1."""

    @abstractmethod
    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy the bits of `source`, of any strides, into the C-contiguous `target` of its type."""

    @abstractmethod
    def write(self, host: np.ndarray, target: Tensor) -> None:
        """Copy the bits of a host array into a tensor of its type."""

    @abstractmethod
    def host(self, tensor: Tensor) -> np.ndarray:
        """The tensor's elements on the host: its own memory where it lies there, else a copy."""

    def digest(self, tensor: Tensor) -> bytes:
        """The tensor digest (COMMITMENTS 3.5)."""
        return self.digests([tensor])[0]

    def digests(self, tensors: Sequence[Tensor]) -> list[bytes]:
        """The tensor digest of each, together: a device hashes many tensors at once and copies all
        digests to the host at once."""
        return [tensor_digest(self.host(tensor)) for tensor in tensors]

    @abstractmethod
    def problem(self, tensor: Tensor, dtype: str, shape: Sequence[int]) -> str:
        """Say why `tensor` is not a C-contiguous tensor of this type on this device; empty if it
        is."""

    def writable(self, tensor: Tensor) -> bool:
        """True if the tensor may be written to."""
        return True


def is_cuda(device: Device) -> TypeGuard[Cuda]:
    """True if the device computes by this package's kernels on a GPU."""
    return device.kind == "cuda"
