"""The claim of a run: its signed commitment, checked against its journal (COMMITMENTS 9.6).

A worker of a distributed run signs what it sends as the run of a share job (job/share.py), and
writes no files. Where the claim is disputed, this makes the directory from which a prover answers:
exactly what was signed, right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.checkpoint import Checkpoint, checkpoint_steps, run_root
from tallystick.commit.signing import Envelope, PrivateKey, PublicKey, RunCommitment, verify_run
from tallystick.commit.state import is_finite
from tallystick.commit.tensor import Array
from tallystick.disk.files import locked, make_directory, write_file
from tallystick.errors import CannotCheckError, DigestMismatchError, UsageError
from tallystick.job.job import Job
from tallystick.job.share import LOSS_BITS, ShareTask
from tallystick.limits import LIMITS
from tallystick.run.logs.reader import keeps_log
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import REASONS, Journal, JournalContent, end_reason, journal_limit


@dataclass(frozen=True)
class Claim:
    """A verified claim. `file` are the bytes in which its commitment was signed; `trusted` is None
    where the caller gave no trust list."""

    file: bytes
    commitment: RunCommitment
    journal: JournalContent
    roots: dict[int, bytes]
    trusted: bool | None

    @property
    def run_root(self) -> bytes:
        return self.commitment.run_root

    @property
    def last_step(self) -> int:
        return self.commitment.final_step


def read_claim(store: RunStore, job: Job, trust: Sequence[PublicKey] | None = None) -> Claim:
    """Read and verify the claim of a finished run of `job`.

    Raises CannotCheckError for a run that is not finished, SignatureInvalidError, and
    DigestMismatchError where journal, commitment and job do not belong together.
    """
    journal = store.journal(job)
    if not store.signed:
        raise CannotCheckError(
            f"The run in {store.directory} is not finished: it has no signed commitment.",
            "Run the same `tallystick train` command again to finish it.",
        )
    file = store.commitment_bytes()
    envelope = Envelope.from_bytes(file, LIMITS.commitment_bytes)
    commitment, verified = verify_run(envelope, trust)
    problem = claim_problem(commitment, journal, job)
    if problem:
        raise DigestMismatchError(
            f"{store.directory}: {problem}.", "Reject the run. `tallystick fsck` lists the faults."
        )
    return Claim(file, commitment, journal, dict(journal.checkpoints), verified.trusted)


def claim_problem(commitment: RunCommitment, journal: JournalContent, job: Job) -> str:
    """Say why commitment, journal and job do not belong together; empty if they do."""
    if commitment.job_digest != job.digest:
        return "the signed commitment is of another job"
    if journal.job_digest != job.digest:
        return "the journal is of another job"
    if journal.torn_bytes:
        return f"the journal is damaged ({journal.torn_why}, {journal.torn_bytes} bytes lost)"
    if not journal.finished or not journal.checkpoints:
        return "the journal does not reach the end of the run"
    steps = [step for step, _ in journal.checkpoints]
    last = steps[-1]
    if steps != checkpoint_steps(last, job.interval) or len(journal.losses) != last:
        return "the checkpoints are not the ones the job asks for"
    if len(journal.logs) != (last if keeps_log(job) else 0):
        return "the journal does not name the rounding logs that the job asks for"
    if run_root(job.digest, journal.checkpoints) != commitment.run_root:
        return "the journal's checkpoints do not give the signed run root"
    if journal.run_root != commitment.run_root or journal.last_step != last:
        return "the journal ends with another run root"
    if (commitment.final_step, commitment.final_state_root, commitment.checkpoints) != (
        last,
        journal.checkpoints[-1][1],
        len(journal.checkpoints),
    ):
        return "the signed final state is not the journal's"
    if journal.checkpoints[0][1] != job.commitment.genesis_root:
        return "the run does not begin with the job's initial state"
    c = job.commitment
    stopped = bool(journal.losses) and not is_finite(journal.losses[-1])
    early = any(not is_finite(bits) for bits in journal.losses[:-1])
    stops = c.stop_on_non_finite
    # A journal does not hold the slot that may have stopped the run: an audit sees that.
    may_end = (stops and stopped) or (c.stop_on_slot and journal.reason == REASONS[2])
    if last > job.steps or (last < job.steps and not may_end) or (stops and early):
        return "the run does not end where the job says"
    return ""


def write_claimed(
    job: Job,
    directory: Path,
    checkpoints: Sequence[Checkpoint],
    losses: Sequence[int],
    envelope: Envelope,
    key: PrivateKey | None = None,
) -> None:
    """Write a finished run of `job` with these checkpoints and bits of losses, under a commitment
    that is signed already. With `key` the signer's key is kept in the directory.

    Raises UsageError where the commitment is of another run, or the directory holds something;
    StorageError.
    """
    commitment, _ = verify_run(envelope)
    root = run_root(job.digest, checkpoints)
    if (commitment.job_digest, commitment.run_root) != (job.digest, root):
        raise UsageError(
            "The signed commitment is from another run.", "Pass this run's own commitment."
        )
    store = RunStore(directory)
    if store.exists:
        raise UsageError(f"{directory} already contains a run.", "Choose another directory.")
    store.create(job)
    with locked(store.lock_path):
        journal = Journal.open(store.journal_path, job.digest, journal_limit(job))
        try:
            roots, last = dict(checkpoints), checkpoints[-1][0]
            for step in range(last + 1):
                if step:
                    journal.loss(step - 1, losses[step - 1])
                if step in roots:
                    journal.checkpoint(step, roots[step])
            reason = end_reason(job, last, losses[-1] if losses else 0)
            journal.end(last, reason, root)
        finally:
            journal.close()
        if key is not None:
            write_file(store.signer_path, [key.pem()], mode=0o600)
        write_file(store.commitment_path, [envelope.to_bytes()])


def write_share_run(
    task: ShareTask,
    directory: Path,
    state: Mapping[str, Array],
    made: Mapping[str, bytes],
    envelope: Envelope,
    key: PrivateKey | None = None,
) -> Path:
    """Write `directory/job`, the share job of `task`, and `directory/run`, the run of the claim in
    `envelope`: that the share's slots have the digests `made`. Returns the run's directory.

    Raises as ShareTask.write and write_claimed.
    """
    make_directory(directory)
    job = task.write(directory / "job", state)
    run = directory / "run"
    write_claimed(job, run, task.checkpoints(made), [LOSS_BITS], envelope, key)
    return run
