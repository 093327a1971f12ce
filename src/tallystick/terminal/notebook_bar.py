"""Progress of an execution in a notebook: a bar in its cell, whose last state is saved with it."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from tallystick.job.job import Job
from tallystick.run.show.estimate import human_seconds
from tallystick.terminal.lines import shown
from tallystick.terminal.progress import Reporter, human_speed

# The shell of a Jupyter kernel, and of what is made from it (Colab's has another name itself).
_KERNEL = "ZMQInteractiveShell"
INTERVAL_S = 0.25
_MOST_NOTICES = 20


class CellOutput(Protocol):
    """An output of a cell that can be drawn anew (IPython's DisplayHandle)."""

    def update(self, obj: object) -> Any:
        """Show `obj` in the place of what is there."""


# IPython's `display(object, display_id=True)`.
Display = Callable[..., Any]


def notebook_display() -> Display | None:
    """IPython's `display` where this process is the kernel of a notebook, else None.

    IPython is not imported: in a notebook it is there.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if not any(kind.__name__ == _KERNEL for kind in type(shell).__mro__):
        return None
    display: Display = import_module("IPython.display").display
    return display


class DrawnBar:
    """A state of the bar, as HTML and as the line that a reader without HTML sees."""

    def __init__(
        self, verb: str, done: int, total: int, told: str, notices: tuple[str, ...]
    ) -> None:
        self._line = f"{verb} {told}"
        self._bar = f'<progress value="{done}" max="{total}"></progress>'
        self._notices = notices

    def __repr__(self) -> str:
        return "\n".join(shown(text) for text in (self._line, *self._notices))

    def _repr_html_(self) -> str:
        line, *notices = (html.escape(shown(text)) for text in (self._line, *self._notices))
        below = "".join(f"<div>{text}</div>" for text in notices)
        return f"<div>{self._bar} {line}</div>{below}"


class NotebookBar(Reporter):
    """Listens to a trainer or an auditor; draws in the cell and prints nothing."""

    def __init__(self, verb: str, display: Display) -> None:
        super().__init__(verb)
        self._display = display
        self._handle: CellOutput | None = None
        self._at = 0
        self._of = 1
        self._told = ""
        self._notices: tuple[str, ...] = ()
        self._drawn = 0.0

    def begin(self, job: Job, start: int) -> None:
        self._timetable = job.commitment.timetable
        self._total = self._of = job.steps
        self._at, self._told = start, f"step {self._done(start)}"
        self._show()

    def _foretell(self, step: int, seconds: float) -> None:
        """The bar says at each step how long the rest takes."""

    def _draw(self, step: int) -> None:
        self._at = step + 1
        told = [f"step {self._done(step + 1)}", f"{self._loss}{self._metrics}{self._validation}"]
        if self._mean > 0:
            told.append(human_speed(1 / self._mean))
            if self._at < self._total:
                told.append(f"{human_seconds((self._total - self._at) * self._mean)} left")
        self._tell(told)

    def segments(self, steps: int, of_steps: int, segments: int, of_segments: int) -> None:
        """Show the steps and segments of an audit in parallel (run/parallel)."""
        now = time.monotonic()
        if self._started is None:
            self._started, self._first = now, steps
        self._at, self._of = steps, of_steps
        told = [f"step {steps}/{of_steps}", f"{segments} of {of_segments} segments"]
        gone, done = now - self._started, steps - self._first
        if done > 0 and gone > 0:
            told.append(human_speed(done / gone))
            if steps < of_steps:
                told.append(f"{human_seconds((of_steps - steps) * gone / done)} left")
        self._tell(told)

    def evaluated(self, step: int, loss: float) -> None:
        self._validation = f"  validation {loss:.4f}"

    def say(self, text: str) -> None:
        self._notices = (*self._notices, text)[-_MOST_NOTICES:]
        self._show()

    def close(self) -> None:
        """Draw the last state, which is the one that the notebook keeps."""
        if self._handle is not None:
            self._show()

    def _tell(self, told: list[str]) -> None:
        self._told = ", ".join(text.strip() for text in told if text)
        if self._at == self._of or time.monotonic() - self._drawn >= INTERVAL_S:
            self._show()

    def _show(self) -> None:
        self._drawn = time.monotonic()
        now = DrawnBar(self._verb, self._at, self._of, self._told, self._notices)
        if self._handle is None:
            self._handle = self._display(now, display_id=True)
        else:
            self._handle.update(now)
