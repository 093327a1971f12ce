"""Rounding logs of steps that do not count: written, measured and removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallystick.contracts.replay.step import LoggedStep
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.disk.files import remove, scratch_directory
from tallystick.disk.regular import size_of
from tallystick.job.job import Job
from tallystick.run.logs.shape import keeps_log
from tallystick.run.logs.writer import LogDirectory, log_path


class ScratchLogs(LoggedSteps):
    """Records logs in the directory `path` and removes them, for an estimate or a benchmark.

    `bytes` are those of the last step's log.
    """

    def __init__(self, job: Job, path: Path) -> None:
        super().__init__(job.program)
        self._path = path
        self._files = LogDirectory(path, job.digest, self.logged.sections, self.logged.form)
        self.bytes = 0

    def _open(self, step: int) -> LoggedStep:
        return self._recorded(step, self._files.writer(step))

    def _ended(self, step: LoggedStep, digest: bytes) -> bytes:
        """The digest of the step's log, which is then removed."""
        path = log_path(self._path, step.number)
        self.bytes = size_of(path, "log")
        remove(path)
        return digest


@contextmanager
def scratch_logs(job: Job) -> Iterator[ScratchLogs | None]:
    """Logs for steps that do not count; None where the job's contract keeps none."""
    if not keeps_log(job):
        yield None
        return
    with scratch_directory() as directory:
        yield ScratchLogs(job, directory)
