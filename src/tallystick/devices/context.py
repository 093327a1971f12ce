"""The execution context: the device, the threads and the instruction set of an execution; and
devices by the names that people give them.

The caller passes it to all code that executes steps, so that two runs, or a run and a dispute,
live in one process without a setting in common. It never changes a bit (NUMERICS 1.8). A thread
that computes enters the context; the core then takes threads and instruction set from it. A
setting that a context leaves open stays as the thread has it outside. Outside of every context the
process's defaults hold: all threads, and the best instruction set or TALLYSTICK_ISA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from tallystick import _core
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device
from tallystick.devices.environment import exact_environment
from tallystick.errors import EnvironmentRefusedError, UsageError
from tallystick.numerics.contracts import parse_contract

MOST_THREADS = 256


class _HasContext(Protocol):
    @property
    def context(self) -> ExecutionContext: ...


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=_HasContext)


class ExecutionContext:
    """The device, threads and instruction set that execute a program.

    `threads`: the number of threads of the core that compute, 1 to 256; more count as 256. `isa`:
    one of `_core.supported_isas()`. If the caller gives one of the two, the other gets its present
    value in this thread. If the caller gives neither, the context leaves both open. `device`: the
    device of the tensors. Raises UsageError for no threads, EnvironmentRefusedError for an
    instruction set that this machine or build does not have.
    """

    def __init__(
        self, threads: int | None = None, isa: str | None = None, device: Device = CPU
    ) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"There are no {threads} threads.", "Use at least one.")
        if isa is not None and isa not in _core.supported_isas():
            raise EnvironmentRefusedError(
                f"This machine or build has no instruction set {isa[:40]!r}.",
                f"Use one of: {', '.join(_core.supported_isas())}.",
            )
        self.device = device
        # The core's own context, with a pool of threads; None where threads and isa are left open.
        self._native: _core.Context | None = None
        if threads is not None or isa is not None:
            count = _core.threads() if threads is None else min(threads, MOST_THREADS)
            self._native = _core.Context(count, _core.isa() if isa is None else isa)

    @property
    def threads(self) -> int:
        """The number of threads of the core that compute."""
        return _core.threads() if self._native is None else int(self._native.threads)

    @property
    def isa(self) -> str:
        """The instruction set that computes: the device's, or that of the core on the
        processor."""
        if self.device.architecture:
            return self.device.architecture
        return _core.isa() if self._native is None else str(self._native.isa)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Within the block, the calling thread computes in this context, and in the floating-point
        environment of NUMERICS 1.7. Blocks may be nested, even blocks of different contexts."""
        native = self._native
        with self.device.alone(), exact_environment():
            if native is None:
                yield
                return
            _core.enter_context(native)
            try:
                yield
            finally:
                _core.leave_context()


def in_its_context(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """Decorates a method of an object that has a `context`: the method runs in that context."""

    @wraps(method)
    def inside(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.context.entered():
            return method(self, *args, **kwargs)

    return cast(Callable[Concatenate[T, P], R], inside)


# A context on the processor that leaves threads and isa open.
DEFAULT = ExecutionContext()


# --- devices by name ------------------------------------------------------------------------------
@lru_cache(maxsize=8)
def _gpu(ordinal: int) -> Device:
    """One object for a GPU in a process: its tensors and its turns belong to it."""
    # Imported late: the processor needs none of it.
    from tallystick.devices.cuda.device import Cuda
    from tallystick.devices.cuda.nvidia import NvidiaDriver

    return Cuda(NvidiaDriver(ordinal))


@lru_cache(maxsize=8)
def _torch_gpu(name: str) -> Device:
    try:
        from tallystick.devices.torch import TorchDevice
    except ImportError as error:
        raise EnvironmentRefusedError(
            "The published form computes on a GPU with torch, which is missing.",
            'Install it with: pip install "tallystick[train]", or compute with --device cpu.',
        ) from error
    return TorchDevice(name)


def find_device(name: str, contract: str) -> Device:
    """The device called `name` ("cpu", "cuda", "cuda:1") for steps under `contract`.

    Under the published form of replay/1 a GPU computes with torch's kernels (NUMERICS 14.9), else
    with this package's. Raises UsageError for another name, EnvironmentRefusedError where the
    machine has no such device, UnsupportedVersionError for an unknown contract.
    """
    if name == "cpu":
        return CPU
    from tallystick.devices.cuda.nvidia import ordinal_of

    ordinal = ordinal_of(name)
    kind = parse_contract(contract).kind_on_gpu
    return _torch_gpu(f"cuda:{ordinal}") if kind == "torch" else _gpu(ordinal)


def context_on(
    name: str, contract: Callable[[], str], threads: int | None = None
) -> ExecutionContext:
    """A context on the device called `name`. Raises as find_device and ExecutionContext.

    `contract` is asked only where the device depends on it: to ask may mean to read a job's file.
    """
    if name == "cpu":
        return ExecutionContext(threads)
    return ExecutionContext(threads, device=find_device(name, contract()))
