"""How many disputed answers are executed at once, and for how long their memory is held.

An execution holds the model's weights and the values of a step. So there are few at a time; where
another game needs one, the one that was used longest ago makes room, unless it is making an answer
now. One that no game has used for a while is let go of.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tallystick.prover.prover import Prover

AT_ONCE = 1
IDLE_SECONDS = 60.0


@dataclass
class _InMemory:
    prover: Prover | None = None
    busy: bool = True
    used: float = field(default_factory=time.monotonic)


class Executions:
    """The provers that are in memory, at most `most`, by the digests of their jobs."""

    def __init__(self, most: int = AT_ONCE, idle_seconds: float = IDLE_SECONDS) -> None:
        self._most, self._idle = most, idle_seconds
        self._held: OrderedDict[bytes, _InMemory] = OrderedDict()
        self._waiting = set[bytes]()
        self._free = threading.Condition()
        self.highest = 0  # that were there at once

    @contextmanager
    def prover(self, job: bytes, make: Callable[[], Prover]) -> Iterator[Prover]:
        """The prover of a job, made if it is not in memory. It waits while all others are making
        answers. The worker of a job asks for one answer at a time."""
        held = self._take(job)
        try:
            if held.prover is None:
                held.prover = make()
            yield held.prover
        finally:
            with self._free:
                held.busy, held.used = False, time.monotonic()
                if held.prover is None:
                    del self._held[job]
                self._free.notify_all()

    def kept(self, job: bytes, query: bytes) -> bytes | None:
        """The answer to `query` that is in memory, if it is."""
        with self._free:
            held = self._held.get(job)
            return None if held is None or held.prover is None else held.prover.kept(query)

    def working(self, job: bytes) -> bool:
        """Whether an answer about this job is being made."""
        with self._free:
            return job in self._held and self._held[job].busy

    def waiting(self, job: bytes) -> bool:
        """Whether a job waits until others make room."""
        with self._free:
            return job in self._waiting

    def let_go(self, job: bytes) -> None:
        """Free the memory of a job, unless it is making an answer."""
        with self._free:
            held = self._held.get(job)
            if held is not None and not held.busy:
                self._drop(job)

    def sweep(self) -> None:
        """Free what nobody has used for a while."""
        end = time.monotonic() - self._idle
        with self._free:
            for job in [j for j, held in self._held.items() if not held.busy and held.used < end]:
                self._drop(job)

    def __len__(self) -> int:
        with self._free:
            return len(self._held)

    def _take(self, job: bytes) -> _InMemory:
        with self._free:
            while True:
                if job in self._held:
                    self._waiting.discard(job)
                    self._held.move_to_end(job)
                    held = self._held[job]
                    held.busy = True
                    return held
                if len(self._held) >= self._most:
                    idle = next((j for j, held in self._held.items() if not held.busy), None)
                    if idle is None:
                        self._waiting.add(job)
                        self._free.wait()
                        continue
                    self._drop(idle)
                self._waiting.discard(job)
                held = self._held[job] = _InMemory()
                self.highest = max(self.highest, len(self._held))
                return held

    def _drop(self, job: bytes) -> None:
        held = self._held.pop(job)
        if held.prover is not None:
            held.prover.close()
        self._free.notify_all()
