"""A finished run whose rounding logs another one follows, and what was found in it.

Only its signed commitment, its journal and its logs are read. The journal is not signed, but what
it says is: its checkpoints give the signed run root, and the digests of its logs give the log
chain that is in every checkpoint's state root (COMMITMENTS 5.6). So at every checkpoint, one
root compared says that values *and* logs are the committed ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.commit.state import CHAIN_START, LOG_CHAIN_SLOT, chain_digest, extend_log_chain
from tallystick.errors import CounterpartyError, StorageError, UsageError
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.logs.findings_record import Found, state_record
from tallystick.run.store.claim import Claim, read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import JournalContent


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
        store = RunStore(Path(directory))
        if store.job_digest() != job.digest:
            raise UsageError(
                f"{store.directory} holds a run of another job.", "Name a run of this job."
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


@dataclass(frozen=True)
class FollowReport:
    """What a run that followed another's logs has found in it.

    `left` and `taken` count choices (NUMERICS 14.8); `findings` name forged entries and logs that
    are missing or damaged; `difference` is the first checkpoint whose state differs.
    """

    run_root: str
    left: int = 0
    taken: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    unnamed: int = 0
    difference: dict[str, Any] | None = None

    @property
    def accepted(self) -> bool:
        """True if nothing speaks against the followed run."""
        return not self.findings and self.difference is None

    def as_dict(self) -> dict[str, Any]:
        """The object `followed` of `train --json`."""
        difference = self.difference
        if difference is not None:
            difference = {k: v for k, v in difference.items() if k != "what"}
        return {
            "accepted": self.accepted,
            "run_root": self.run_root,
            "choices": {"left": self.left, "taken": self.taken},
            "findings": self.findings,
            "findings_not_listed": self.unnamed,
            "difference": difference,
        }


def follow_report(journal: JournalContent) -> FollowReport | None:
    """What the journal of a run says of the run that it follows, None if it follows none."""
    root = next((s["replay"] for s in reversed(journal.sessions) if s.get("replay")), None)
    if root is None:
        return None
    left = taken = unnamed = 0
    findings: list[dict[str, Any]] = []
    difference: dict[str, Any] | None = None
    for (_, what), found in sorted(journal.followed.items()):
        if what == "state":
            difference = difference or found
        else:
            left, taken = left + found["left"], taken + found["taken"]
            findings += found["findings"]
            unnamed += found["unnamed"]
    return FollowReport(str(root), left, taken, findings, unnamed, difference)
