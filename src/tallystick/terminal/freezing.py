"""The progress of a freeze: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tallystick.data.freeze import Progress
from tallystick.run.show.estimate import human_bytes, human_seconds
from tallystick.terminal.lines import note

_PLAIN_INTERVAL_S = 10.0


class FreezeBar:
    """Called after each block; says records, bytes, speed, and the time left where the number of
    records is known. Writes to standard error."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._began = self._spoke = time.monotonic()

    def __enter__(self) -> FreezeBar:
        console = Console(stderr=True)
        if not self._quiet and console.is_terminal and sys.stderr.isatty():
            self._bar = Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=12 if console.width < 72 else 24),
                TextColumn("{task.fields[done]}", markup=False),
                TimeRemainingColumn(compact=True),
                console=console,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, at: Progress) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if at.stage != self._stage:
            self._stage, self._began = at.stage, now
            if self._bar is not None:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(at.stage, total=at.count, done="")
        seconds = max(now - self._began, 1e-9)
        done = f"{at.records:,} records"
        if at.nbytes:
            done += f"  {human_bytes(at.nbytes)}  {human_bytes(at.nbytes / seconds)}/s"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=at.records, done=done)
        elif now - self._spoke >= _PLAIN_INTERVAL_S:
            self._spoke = now
            left = ""
            if at.count:
                left = f", {human_seconds(seconds * (at.count - at.records) / at.records)} left"
            note(f"{at.stage} {done}{left}")
