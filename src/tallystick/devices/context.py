"""The execution context: the device, the threads and the instruction set of an execution.

The caller passes it to all code that executes steps, so that two runs, or a run and a dispute,
live in one process without a setting in common. It never changes a bit (NUMERICS 1.8). A thread
that computes enters the context; the core then takes threads and instruction set from it. A
setting that a context leaves open stays as the thread has it outside. Outside of every context the
process's defaults hold: all threads, and the best instruction set or TALLYSTICK_ISA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from tallystick import _core
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device
from tallystick.devices.environment import exact_environment
from tallystick.errors import EnvironmentRefusedError, UsageError

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
