"""The claim of a run: its signed commitment, checked against its journal (COMMITMENTS 9.6), and the
key that signs where the user gives none.

In a dispute the prover signs its answers with the key of the run's commitment (PROTOCOL 2.5).
Where the user gives no key, the trainer makes one, which stays in the run directory, mode 0600.
The trainer never copies a given key there. Any person who has the file can answer in the run's
name, so it does not belong in a copy for others.

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
from tallystick.commit.signing import sign_run as sign_commitment
from tallystick.commit.state import is_finite
from tallystick.commit.tensor import Array
from tallystick.disk.files import locked, make_directory, remove_file, write_file
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import present, read_file
from tallystick.errors import (
    CannotCheckError,
    CorruptFileError,
    DigestMismatchError,
    TallystickError,
    UsageError,
)
from tallystick.job.job import Job
from tallystick.job.share import LOSS_BITS, ShareTask
from tallystick.limits import LIMITS
from tallystick.run.logs.reader import keeps_log
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import REASONS, Journal, JournalContent, end_reason, journal_limit


def sign(store: RunStore, job: Job, journal: Journal, key: PrivateKey | None) -> str:
    """Write the signed run commitment of a finished run; return the signer's key id.

    Without `key`, the key in the run directory signs. The function makes that key if there is
    none.
    """
    content = journal.content
    if key is None:
        signer = _own_key(store.signer_path)
    else:
        signer = key
        remove_file(store.signer_path)  # of an earlier attempt without --key
    step, root = content.checkpoints[-1]
    commitment = RunCommitment(
        job_digest=job.digest,
        run_root=run_root(job.digest, content.checkpoints),
        final_step=step,
        final_state_root=root,
        checkpoints=len(content.checkpoints),
        signer=signer.public,
    )
    write_file(store.commitment_path, [sign_commitment(signer, commitment).to_bytes()])
    return signer.public.key_id


def _own_key(path: Path) -> PrivateKey:
    """The key in the run directory. If there is none, make one and write it durably first."""
    if present(path):
        return read_own_key(path)
    key = PrivateKey.generate()
    write_file(path, [key.pem()], mode=0o600)
    return key


def read_own_key(path: Path) -> PrivateKey:
    """Read the key that write_file wrote to `path`; every byte must be as written. Raises
    CannotCheckError."""
    key = load_private_key(path, path.parent)
    if read_file(path, LIMITS.key_file_bytes, "signer's key", path.parent) != key.pem():
        raise CorruptFileError(f"The signer's key {path} was altered.", "Restore it from a copy.")
    return key


def check_own_key(path: Path, signer: PublicKey | None) -> None:
    """Raise unless the key at `path` is intact and, where the run is signed, has signed it."""
    if read_own_key(path).public != signer and signer is not None:
        raise DigestMismatchError(
            f"The key {path} is not the one that signed the run.",
            "Restore the right key. Without it, the run cannot answer in a dispute.",
        )


def signing_key(store: RunStore, signer: PublicKey, key: PrivateKey | None) -> PrivateKey:
    """The private key of `signer`: the given key, or the run's own.

    Raises UsageError where there is no key, or where the key is not the signer's.
    """
    if key is None:
        if not present(store.signer_path):
            raise UsageError(
                f"The key that signed {store.directory} is not stored in it.",
                "Pass the signer's private key.",
            )
        key = read_own_key(store.signer_path)
    if key.public != signer:
        raise UsageError(
            f"This key is not the one that signed {store.directory}.",
            f"Pass the private key of {signer.key_id[:16]}...",
        )
    return key


def signed_already(store: RunStore) -> str:
    """The signer's key id; empty while the run is not signed."""
    try:
        envelope = store.envelope()
    except TallystickError:
        return ""
    return envelope.signatures[0].key_id if envelope and envelope.signatures else ""


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
