"""The shape of every rounding log of a run: its job's sections, and the job's digest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tallystick.commit.log import Section
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.job.job import Job
from tallystick.numerics.contracts import parse_contract
from tallystick.run.logs.reader import Expected, LogReader, expected_of, open_log
from tallystick.run.store.directory import RunStore


@dataclass(frozen=True)
class LogShape:
    """The shape of every log of a run of `job`, whose contract keeps logs."""

    job: Job

    @cached_property
    def logged(self) -> LoggedProgram:
        return LoggedProgram(self.job.program)

    @property
    def sections(self) -> tuple[Section, ...]:
        return self.logged.sections

    @cached_property
    def expected(self) -> Expected:
        return expected_of(self.logged, self.job.digest)

    def open(
        self, store: RunStore, step: int, digest: bytes | None, verify: bool = True
    ) -> LogReader:
        """The log of `step` in the run at `store`, which must have this digest if one is given;
        every section read and hashed once if `verify`.

        Raises LogCorruptError where it is missing or another, StorageError.
        """
        reader = open_log(store.logs_path, step, self.expected, digest, store.directory)
        if verify:
            try:
                reader.verify()
            except BaseException:
                reader.close()
                raise
        return reader

    def check(self, store: RunStore, step: int, digest: bytes) -> None:
        """Check every byte of a step's log. Raises LogCorruptError, StorageError."""
        self.open(store, step, digest).close()


def keeps_log(job: Job) -> bool:
    """Whether a run of `job` has rounding logs."""
    return parse_contract(job.commitment.contract).keeps_log
