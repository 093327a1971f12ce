"""Rounding logs that exist, followed: a run's own once more, or those of another finished run.

Under `replay/1` a step is a function of the job and of its log (NUMERICS 14.1), so whoever
repeats a step of a run, on whatever hardware, needs the run's log of it. A log counts only if it
hashes to what the journal says, and the journal's digests only as far as the log chain of a
committed state covers them; the roots compared at checkpoints show that.

Of another run only the signed commitment, the journal and the logs are read. The journal is not
signed, but what it says is: its checkpoints give the signed run root, and the digests of its logs
give the log chain that is in every checkpoint's state root (COMMITMENTS 5.6). So at every
checkpoint, one root compared says that values *and* logs are the committed ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.state import CHAIN_START, LOG_CHAIN_SLOT, chain_digest, extend_log_chain
from tallystick.contracts.replay.findings import KEPT
from tallystick.contracts.replay.step import LoggedStep
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.errors import CounterpartyError, StorageError, UsageError
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.logs.reader import LogShape, keeps_log
from tallystick.run.logs.report import Found, state_record, step_record
from tallystick.run.store.claim import Claim, read_claim
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


@dataclass
class FollowedRun:
    """The run at `store`, of the same job, whose claim was verified."""

    store: RunStore
    job: Job
    claim: Claim
    _chain: tuple[int, bytes] = (0, CHAIN_START)

    @staticmethod
    def open(directory: Path, job: Job) -> FollowedRun:
        """Read and check the claim of the run in `directory`.

        Raises UsageError for something else or a run of another job, CannotCheckError for an
        unfinished one, CounterpartyError where its files do not belong together.
        """
        store = RunStore(directory)
        if store.job_digest() != job.digest:
            raise UsageError(
                f"{store.directory} contains a run of another job.", "Name a run of this job."
            )
        return FollowedRun(store, job, read_claim(store, job))

    def log_digest(self, step: int) -> bytes | None:
        """The digest of the log of `step`, None past the run's end."""
        logs = self.claim.journal.logs
        return logs[step] if step < len(logs) else None

    def log_chain(self, step: int) -> bytes:
        """Its log chain in state[step] (COMMITMENTS 5.6); asked for in ascending order."""
        at, chain = self._chain if self._chain[0] <= step else (0, CHAIN_START)
        for index in range(at, step):
            chain = extend_log_chain(chain, index, self.claim.journal.logs[index])
        self._chain = step, chain
        return chain

    def compare(self, step: int, digests: Mapping[str, bytes]) -> Found | None:
        """How the follower's state[step], whose slots have these digests, differs from the
        committed one but for the follower's own log chain; None if it does not."""
        committed = self.claim.roots.get(step)
        if committed is None or step > self.claim.last_step:
            return None
        mine = {**digests, LOG_CHAIN_SLOT: chain_digest(self.log_chain(step))}
        root = State.root_of(mine)
        if root == committed:
            return None
        before = max((s for s in self.claim.roots if s < step), default=0)
        return state_record(step, before, self._slot(step, mine), committed, root)

    def _slot(self, step: int, mine: Mapping[str, bytes]) -> str | None:
        """The first slot that differs, where the run has stored this state."""
        if step not in self.store.stored_steps():
            return None
        try:
            state = self.store.load_state(self.job, step, self.claim.roots[step], copy=False)
        except (CounterpartyError, StorageError):
            return None
        theirs = state.digests()
        return next((name for name in sorted(mine) if mine[name] != theirs[name]), None)
