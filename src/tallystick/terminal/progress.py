"""Progress of an execution: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tallystick.closing import Closing
from tallystick.commit.timetable import Timetable
from tallystick.job.job import Job
from tallystick.run.show.estimate import human_seconds
from tallystick.terminal.lines import note, shown

_PLAIN_INTERVAL_S = 10.0
_MEASURED_STEPS = 2
_METRICS_SHOWN = 2
# The weight of the last step in the speed that is shown.
_SPEED_SHARE = 0.1
# Columns of the terminal from which the bar, and then elapsed time, have room.
_NARROW, _WIDE = 72, 100


def _columns(verb: str, width: int) -> list[ProgressColumn]:
    """What a live line shows in a terminal of `width` columns, the most useful first."""
    text = "{task.fields[steps]}  {task.fields[loss]}  {task.fields[speed]}"
    middle = TextColumn(text, markup=False)
    if width < _NARROW:
        return [middle, TimeRemainingColumn(compact=True)]
    bar = BarColumn(bar_width=12 if width < _WIDE else 24)
    ends: list[ProgressColumn] = [TimeRemainingColumn(compact=True)]
    if width >= _WIDE:
        ends = [TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left")]
    return [TextColumn(verb, markup=False), bar, middle, *ends]


def human_speed(steps_a_second: float) -> str:
    """Steps a second, or seconds a step where that is more than one."""
    if steps_a_second >= 1:
        return f"{steps_a_second:.3g} steps/s"
    return f"{1 / steps_a_second:.3g} s/step" if steps_a_second > 0 else ""


class Reporter(Closing):
    """Listens to a trainer or an auditor; writes to standard error, so `--json` stays clean."""

    def __init__(self, verb: str, quiet: bool = False, last_step: int | None = None) -> None:
        self._verb = verb
        self._quiet = quiet
        self._last = last_step
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._seconds: list[float] = []
        self._spoke = 0.0
        self._total = 0
        self._mean = 0.0  # seconds of a training step, the last ones weighing most
        self._loss = ""
        self._validation = ""
        self._metrics = ""
        self._wide = False
        self._timetable: Timetable | None = None
        self._started: float | None = None  # of an audit by segments, with the steps done before
        self._first = 0

    def notice(self, text: str) -> None:
        if not self._quiet:
            self.say(text)

    def begin(self, job: Job, start: int) -> None:
        self._timetable = job.commitment.timetable
        self._total = min(self._last, job.steps) if self._last is not None else job.steps
        if self._quiet:
            return
        self.close()  # a run that goes on with other workers begins again
        if start:
            note(f"{self._verb} from step {start} of {self._total}")
        console = Console(stderr=True)
        if console.is_terminal and sys.stderr.isatty():
            columns = _columns(self._verb, console.width)
            self._wide = console.width >= _WIDE
            self._bar = Progress(*columns, console=console, transient=False)
            self._bar.start()
            self._task = self._bar.add_task(
                "", total=self._total, completed=start, steps=self._done(start), loss="", speed=""
            )
        self._spoke = time.monotonic()

    def _done(self, steps: int) -> str:
        """The training steps done, of how many."""
        assert self._timetable is not None
        return f"{self._timetable.trained(steps)}/{self._timetable.trained(self._total)}"

    def step(self, step: int, loss: float, seconds: float) -> None:
        if self._quiet or self._timetable is None:
            return
        if self._timetable.trains(step):
            self._loss = f"loss {loss:.4f}"
            share = _SPEED_SHARE if self._mean else 1.0
            self._mean += share * (seconds - self._mean)
        elif self._timetable.ends_pass(step):
            self.evaluated(self._timetable.trained(step), loss)
        self._foretell(step, seconds)
        self._draw(step)

    def _draw(self, step: int) -> None:
        """Show that `step` is done."""
        speed = human_speed(1 / self._mean) if self._mean > 0 else ""
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                completed=step + 1,
                steps=self._done(step + 1),
                loss=f"{self._loss}{self._metrics if self._wide else ''}{self._validation}",
                speed=speed,
            )
        elif time.monotonic() - self._spoke >= _PLAIN_INTERVAL_S or step + 1 == self._total:
            self._spoke = time.monotonic()
            done = self._done(step + 1)
            told = f"{self._loss}{self._metrics}{self._validation}"
            note(f"{self._verb} step {done} {told}  {speed}")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Show the first numbers beside the loss; all of them are in the run's metrics.jsonl."""
        shown_first = list(values.items())[:_METRICS_SHOWN]
        self._metrics = "".join(f"  {name} {value:.4g}" for name, value in shown_first)

    def _foretell(self, step: int, seconds: float) -> None:
        """Say once how long the rest will take, as soon as two steps are measured."""
        if len(self._seconds) < _MEASURED_STEPS:
            self._seconds.append(seconds)
            if len(self._seconds) == _MEASURED_STEPS:
                left = (self._total - step - 1) * self._seconds[-1]
                self.say(
                    f"time: about {human_seconds(left)} for {self._total - step - 1} more steps "
                    f"of {human_seconds(self._seconds[-1])}"
                )

    def segments(self, steps: int, of_steps: int, segments: int, of_segments: int) -> None:
        """Show the steps and segments of an audit in parallel (run/parallel)."""
        if self._quiet:
            return
        now = time.monotonic()
        if self._started is None:
            self._started, self._first, self._spoke = now, steps, now
            console = Console(stderr=True)
            if console.is_terminal and sys.stderr.isatty():
                self._bar = Progress(*_columns(self._verb, console.width), console=console)
                self._bar.start()
                self._task = self._bar.add_task("", total=of_steps, steps="", loss="", speed="")
        gone, done = now - self._started, steps - self._first
        speed = done / gone if gone > 0 else 0.0
        told = f"{steps}/{of_steps}", f"{segments} of {of_segments} segments", human_speed(speed)
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, completed=steps, steps=told[0], loss=told[1], speed=told[2]
            )
        elif now - self._spoke >= _PLAIN_INTERVAL_S or steps == of_steps:
            self._spoke = now
            left = f"  {human_seconds((of_steps - steps) / speed)} left" if speed > 0 else ""
            note(f"{self._verb} step {told[0]}, {told[1]}  {told[2]}{left}")

    def evaluated(self, step: int, loss: float) -> None:
        self._validation = f"  validation {loss:.4f}"
        if not self._quiet and self._bar is None:
            note(f"step {step}: validation loss {loss:.4f}")

    def say(self, text: str) -> None:
        """Print a sentence, progress or not."""
        if self._bar is not None:
            console = self._bar.console
            console.print(shown(text), markup=False, highlight=False, emoji=False)
        else:
            note(text)

    def close(self) -> None:
        """End the live line."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def counted(what: str, total: int, quiet: bool) -> Iterator[Callable[[object], None]]:
    """Draw a bar of `total` parts on standard error. Call the given function after each part."""
    columns = (
        TextColumn(what, markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task("", total=total)
        yield lambda _: bar.update(task, advance=1)
