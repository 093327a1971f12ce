"""A plain PyTorch float32 training step that takes turns with the steps of a real run."""

from __future__ import annotations

import time
from collections.abc import Callable

from tallystick.job.job import Job

# A turn is two steps of the run, then two plain ones; the second of each counts. In the first a
# side gets the memory back that it gave up during the other's turn. Only every second turn has
# plain steps: they are for the ratio alone, and a run of twenty steps is long.
TURN, OF = 2, 4
# The wait after plain steps, so that torch's worker threads are asleep.
_PAUSE = 0.02


class Beside:
    """A listener of `train_job`. Keeps the seconds of its steps, and of plain steps between them.

    `plain` takes one plain step and returns its loss; without it there are no plain steps. The
    seconds of a step of ours contain its checkpoint, where it has one.
    """

    def __init__(self, plain: Callable[[], float] | None) -> None:
        self._plain = plain
        self.seconds: dict[str, list[float]] = {"ours": [], "plain": []}
        self.all_seconds: list[float] = []
        self.plain_losses: list[float] = []
        self._taken = 0

    def notice(self, text: str) -> None:
        return None

    def begin(self, job: Job, start: int) -> None:
        # Warm-up of the plain side: allocations and its optimizer's state.
        if self._plain is not None:
            self.plain_losses.append(self._plain())

    def step(self, step: int, loss: float, seconds: float) -> None:
        self.all_seconds.append(seconds)
        self._taken += 1
        if self._plain is not None and self._taken % OF == TURN:
            self.seconds["ours"].append(seconds)
            time.sleep(_PAUSE)
            for number in range(TURN):
                began = time.perf_counter()
                self.plain_losses.append(self._plain())
                if number == TURN - 1:
                    self.seconds["plain"].append(time.perf_counter() - began)
            time.sleep(_PAUSE)

    def evaluated(self, step: int, loss: float) -> None:
        return None
