"""Listeners: the engine's callers tell them the progress of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tallystick.devices.environment import reestablish
from tallystick.job.job import Job


class Listener(Protocol):
    """Receives the progress of a run, as the command line's display does.

    One that has a method `metrics(step, values)` also gets the numbers that the program reports
    beside the loss, by name, before `step` is called: the gradient norm as `grad_norm`. One that
    has a method `ended(result)` gets the summary of a training at its end, finished or interrupted,
    and None where it has ended with an error.
    """

    def notice(self, text: str) -> None:
        """Receive one sentence for a person."""

    def begin(self, job: Job, start: int) -> None:
        """Learn that execution begins at step `start`."""

    def step(self, step: int, loss: float, seconds: float) -> None:
        """Learn that step `step` is done and took `seconds`."""

    def evaluated(self, step: int, loss: float) -> None:
        """Receive the validation loss of state[step]."""


class Steady:
    """Passes each call on to `other`, then sets the floating-point environment again: a listener
    is foreign code, and may leave the thread in any environment (NUMERICS 1.7)."""

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

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        told = getattr(self._other, "metrics", None)
        if told is not None:
            told(step, values)
            reestablish()

    def evaluated(self, step: int, loss: float) -> None:
        self._other.evaluated(step, loss)
        reestablish()


class Silent:
    """A listener that ignores every call."""

    def notice(self, text: str) -> None:
        return None

    def begin(self, job: Job, start: int) -> None:
        return None

    def step(self, step: int, loss: float, seconds: float) -> None:
        return None

    def evaluated(self, step: int, loss: float) -> None:
        return None


class Several:
    """A listener that passes each call on to all of `listeners`, in their order."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def notice(self, text: str) -> None:
        for one in self.listeners:
            one.notice(text)

    def begin(self, job: Job, start: int) -> None:
        for one in self.listeners:
            one.begin(job, start)

    def step(self, step: int, loss: float, seconds: float) -> None:
        for one in self.listeners:
            one.step(step, loss, seconds)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        for one in self.listeners:
            told = getattr(one, "metrics", None)
            if told is not None:
                told(step, values)

    def evaluated(self, step: int, loss: float) -> None:
        for one in self.listeners:
            one.evaluated(step, loss)

    def ended(self, result: object | None) -> None:
        for one in self.listeners:
            told = getattr(one, "ended", None)
            if told is not None:
                told(result)
