"""Ctrl-C and SIGTERM stop a run at the end of a step, so that nothing is lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType


@dataclass
class Stop:
    """A flag that the first interrupt sets; the second interrupt raises.

    Under torchrun no interrupt raises: one Ctrl-C is two signals there, the terminal's and
    torchrun's, and it is torchrun that kills a process which takes too long."""

    requested: bool = False
    patient: bool = field(default_factory=lambda: "TORCHELASTIC_RUN_ID" in os.environ)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.requested and not self.patient:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def interrupts(stop: Stop) -> Iterator[None]:
    """Within this context SIGINT and SIGTERM set `stop`; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
