"""Who is told how a run goes."""

from __future__ import annotations

from typing import Protocol

from tallystick.job.job import Job
from tallystick.kernels.environment import reestablish


class Listener(Protocol):
    """Who is told how a run goes: the command line's progress, or nobody."""

    def notice(self, text: str) -> None:
        """One sentence for a person."""

    def begin(self, job: Job, start: int) -> None:
        """Execution begins at step `start`."""

    def step(self, step: int, loss: float, seconds: float) -> None:
        """Step `step` is done and took `seconds`."""

    def evaluated(self, step: int, loss: float) -> None:
        """The validation loss of state[step]."""


class Steady:
    """Tells `other`, and sets the floating-point environment again after each call: a listener is
    foreign code, which may leave the thread in any (NUMERICS 1.7)."""

    def __init__(self, other: Listener) -> None:
        self._other = other

    def notice(self, text: str) -> None:
        self._other.notice(text)
        reestablish()

    def begin(self, job: Job, start: int) -> None:
        self._other.begin(job, start)
        reestablish()

    def step(self, step: int, loss: float, seconds: float) -> None:
        self._other.step(step, loss, seconds)
        reestablish()

    def evaluated(self, step: int, loss: float) -> None:
        self._other.evaluated(step, loss)
        reestablish()


class Silent:
    """A listener that tells nobody."""

    def notice(self, text: str) -> None:
        return None

    def begin(self, job: Job, start: int) -> None:
        return None

    def step(self, step: int, loss: float, seconds: float) -> None:
        return None

    def evaluated(self, step: int, loss: float) -> None:
        return None
