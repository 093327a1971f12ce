"""What tests of audits in parallel share: runs with many stored states, workers without processes,
and the comparison with the serial audit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tallystick.errors import TallystickError
from tallystick.job.job import Job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.parallel import audit as parallel
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.parallel.processes import AttemptEnded, Event
from tallystick.run.parallel.task import Repeater, Segment, Task
from tallystick.run.show.audit_report import AuditReport

# Another machine, or another number of workers, gives other ones.
OWN_FIGURES = ("isa", "threads", "seconds", "segments")


class Inline:
    """Workers in this process: the last attempt begun ends first, so that results come out of
    order."""

    kind = "processes"

    def __init__(self, task: Task, workers: int) -> None:
        self.workers = workers
        self._repeater = Repeater(task)
        self._live: dict[int, Segment] = {}

    def start(self, attempt: int, segment: Segment) -> None:
        assert len(self._live) < self.workers
        self._live[attempt] = segment

    def events(self, timeout: float) -> list[Event]:
        attempt, segment = self._live.popitem()
        return [AttemptEnded(attempt, self._repeater.answer(segment), "inline")]

    def stop(self, attempt: int) -> None:
        del self._live[attempt]

    def close(self) -> None:
        self._live = {}


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits in parallel use `Inline` workers."""
    monkeypatch.setattr(parallel, "Processes", Inline)


Found = dict[str, Any] | tuple[type, str, str, int]


def found(report: AuditReport) -> dict[str, Any]:
    """What a report says of the run."""
    return {k: v for k, v in asdict(report).items() if k not in OWN_FIGURES}


def serial(run: Path, job: Job | None = None, steps: tuple[int, int] | None = None) -> Found:
    """What the serial audit says: its report or its error."""
    try:
        return found(audit_run(run, job, steps))
    except TallystickError as error:
        return type(error), error.message, error.next_action, error.exit_code


def in_parallel(
    run: Path,
    job: Job | None = None,
    steps: tuple[int, int] | None = None,
    **options: Any,
) -> Found:
    """What the audit in parallel says."""
    try:
        made = ParallelOptions(**{"workers": 3, "threads": 1, **options})
        return found(audit_in_parallel(run, job, steps, made))
    except TallystickError as error:
        return type(error), error.message, error.next_action, error.exit_code
