"""Bounds on what one call may cost while files are fuzzed: time, and memory beyond what is used."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS, MEMORY = 10, 256 << 20


class TooLongError(BaseException):
    """A call has taken more than SECONDS. No handler of the package catches it."""


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def bound_memory() -> None:
    """From here on this process may map MEMORY more than it has now; call it after imports."""
    limit = _address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextmanager
def bounded_time() -> Iterator[None]:
    """Raise TooLongError in the main thread after SECONDS."""

    def late(_: int, __: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
