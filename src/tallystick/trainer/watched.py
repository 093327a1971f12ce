"""A person's listener beside a run: it hears the numbers, and changes none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tallystick.job.job import Job
from tallystick.run.execute.listener import Listener
from tallystick.run.show.summary import trained
from tallystick.trainer.watching import Watch, refusal, told


class WatchedListener:
    """Passes each call on to `listener`, and looks at the training before and after it.

    Raises CallbackError, naming the listener, where it changes what the job fixes.
    """

    def __init__(self, listener: Listener, watch: Watch) -> None:
        self._listener, self._watch = listener, watch
        self._job: Job | None = None
        self._done = 0

    def _call(self, method: str, *given: Any) -> None:
        call: Callable[..., None] | None = getattr(self._listener, method, None)
        if call is None:
            return
        self._watch.at(self._done)
        before = self._watch.look(marks=True)
        call(*given)
        after = self._watch.look(marks=True)
        names, why = self._watch.changes(before, after)
        if names:
            who = f"{type(self._listener).__name__}.{method}"
            raise refusal(who, self._done, told(names, before, after), why)

    def notice(self, text: str) -> None:
        self._call("notice", text)

    def begin(self, job: Job, start: int) -> None:
        self._job, self._done = job, trained(job.commitment.timetable, start)
        self._call("begin", job, start)

    def step(self, step: int, loss: float, seconds: float) -> None:
        assert self._job is not None
        self._done = trained(self._job.commitment.timetable, step + 1)
        self._call("step", step, loss, seconds)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._call("metrics", step, values)

    def evaluated(self, step: int, loss: float) -> None:
        self._call("evaluated", step, loss)


def watched(listener: Listener | None, watch: Callable[[], Watch]) -> Listener | None:
    """`listener` under a watch, where a person wrote it: our own only report."""
    if listener is None or type(listener).__module__.partition(".")[0] == "tallystick":
        return listener
    return WatchedListener(listener, watch())
