"""The run directory of a claim that was signed without one.

A worker of a distributed run signs what it sends as the run of a share job (job/share.py), and
writes no files. Where the claim is disputed, this makes the directory from which a prover answers:
exactly what was signed, right or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tallystick.commit.checkpoint import Checkpoint, run_root
from tallystick.commit.signing import Envelope, PrivateKey, verify_run
from tallystick.commit.tensor import Array
from tallystick.disk.files import locked, make_directory, write_file
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.share import LOSS_BITS, ShareTask
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal, end_reason, journal_limit


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
