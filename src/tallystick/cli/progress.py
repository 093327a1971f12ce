"""Progress of an execution: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tallystick.cli.output import note, shown
from tallystick.job.job import Job
from tallystick.run.show.estimate import human_seconds

_PLAIN_INTERVAL_S = 10.0
_MEASURED_STEPS = 2
_METRICS_SHOWN = 2


class Reporter:
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
        self._loss = float("nan")
        self._validation = ""
        self._metrics = ""

    def notice(self, text: str) -> None:
        if not self._quiet:
            note(text)

    def begin(self, job: Job, start: int) -> None:
        self._total = min(self._last, job.steps) if self._last is not None else job.steps
        if self._quiet:
            return
        if start:
            note(f"{self._verb} from step {start} of {self._total}")
        console = Console(stderr=True)
        if console.is_terminal and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn(self._verb, markup=False),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} steps", markup=False),
                TextColumn("{task.fields[loss]}", markup=False),
                TimeRemainingColumn(),
                console=console,
                transient=False,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, completed=start, loss="")
        self._spoke = time.monotonic()

    def step(self, step: int, loss: float, seconds: float) -> None:
        self._loss = loss
        if self._quiet:
            return
        if len(self._seconds) < _MEASURED_STEPS:
            self._seconds.append(seconds)
            if len(self._seconds) == _MEASURED_STEPS:
                left = (self._total - step - 1) * self._seconds[-1]
                self._say(
                    f"time: about {human_seconds(left)} for {self._total - step - 1} more steps "
                    f"of {human_seconds(self._seconds[-1])}"
                )
        text = f"loss {loss:.4f}{self._metrics}{self._validation}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step + 1, loss=text)
        elif time.monotonic() - self._spoke >= _PLAIN_INTERVAL_S or step + 1 == self._total:
            self._spoke = time.monotonic()
            note(f"{self._verb} step {step + 1}/{self._total} {text}")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Show the first numbers beside the loss; all of them are in the run's metrics.jsonl."""
        shown_first = list(values.items())[:_METRICS_SHOWN]
        self._metrics = "".join(f"  {name} {value:.4g}" for name, value in shown_first)

    def evaluated(self, step: int, loss: float) -> None:
        self._validation = f"  validation {loss:.4f}"
        if not self._quiet and self._bar is None:
            note(f"step {step}: validation loss {loss:.4f}")

    def _say(self, text: str) -> None:
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
