"""A run's own rounding logs, followed once more: by its auditor, or by its prover.

Under `replay/1` a step is a function of the job and of its log (NUMERICS 14.1), so whoever
repeats a step of a run, on whatever hardware, needs the run's log of it. A log counts only if it
hashes to what the journal says, and the journal's digests only as far as the log chain of a
committed state covers them; the roots compared at checkpoints show that.
"""

from __future__ import annotations

from tallystick.contracts.replay.findings import KEPT
from tallystick.contracts.replay.step import LoggedStep
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.job.job import Job
from tallystick.run.logs.report import Found, step_record
from tallystick.run.logs.shape import LogShape, keeps_log
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import JournalContent


class OwnLogs(LoggedSteps):
    """Follows the logs of the run at `store` step by step.

    The digest that enters the chain is the one the run has committed to, whatever was found in
    the log: whether the run's values are right is one question, whether its log is another.
    With `count` every choice that the log has left is looked at, and `taken` is exact.
    """

    def __init__(
        self, store: RunStore, job: Job, journal: JournalContent, count: bool = False
    ) -> None:
        super().__init__(job.program, count_taken=count)
        self._store, self._journal, self._shape = store, journal, LogShape(job)
        self.reported: list[Found] = []  # findings as they are printed
        self.unnamed = 0  # and how many more

    def _digest(self, step: int) -> bytes:
        logs = self._journal.logs
        return logs[step] if step < len(logs) else bytes(32)

    def _open(self, step: int) -> LoggedStep:
        """Check and open the log of `step`. Raises LogCorruptError where it is missing or not
        the one in the journal, StorageError."""
        reader = self._shape.open(self._store, step, self._digest(step))
        return self._followed(step, reader, self.digest_only)

    def _ended(self, step: LoggedStep, digest: bytes) -> bytes:
        """The digest of the log that was followed."""
        record = step_record(step)
        room = max(0, KEPT - len(self.reported))
        self.reported += record["findings"][:room]
        self.unnamed += record["unnamed"] + len(record["findings"][room:])
        return self._digest(step.number)


def own_logs(
    store: RunStore, job: Job, journal: JournalContent, count: bool = False
) -> OwnLogs | None:
    """What an engine needs to repeat steps of the run at `store`: an auditor's, a prover's. None
    where the job's contract keeps no log."""
    return OwnLogs(store, job, journal, count) if keeps_log(job) else None
