"""The prover's choice of files: it takes only what the signed commitment covers (PROTOCOL 1.4).

The signature covers the run root, and so the checkpoints. Each checkpoint covers a state, and with
it the chains of losses and of log digests. No signature covers the journal itself. Where the
journal does not give the signed run root, or its logs are not those of the chain, the prover
executes the run again.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.commit.checkpoint import checkpoint_steps, run_root
from tallystick.commit.signing import RunCommitment
from tallystick.errors import CounterpartyError, DigestMismatchError, StorageError, StoreError
from tallystick.job.job import Job
from tallystick.prover.states import RunStates
from tallystick.run.logs.reader import LogShape, keeps_log
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import JournalContent

Notice = Callable[[str], None]


def _gives(checkpoints: list[tuple[int, bytes]], job: Job, run: RunCommitment) -> bool:
    """True if these are the checkpoints under the signed run root."""
    if len(checkpoints) != run.checkpoints or run.job_digest != job.digest:
        return False
    steps = [step for step, _ in checkpoints]
    if steps != checkpoint_steps(run.final_step, job.interval):
        return False
    return run_root(job.digest, checkpoints) == run.run_root


def usable_journal(store: RunStore, job: Job, run: RunCommitment, notice: Notice) -> JournalContent:
    """The journal of the run, without its checkpoints where they are not the signed ones. The
    losses and log digests in it are hints. Raises StoreError: a store that is away is no reason to
    execute the whole run again."""
    try:
        found = store.journal(job)
    except StoreError:
        raise
    except (CounterpartyError, StorageError) as error:
        notice(f"The journal is not used: {error.message}")
        return JournalContent(job.digest)
    if not _gives(found.checkpoints, job, run):
        notice(f"The checkpoints in {store.journal_path} do not give the signed run root.")
        found.checkpoints.clear()
    return found


def make_good(states: RunStates, run: RunCommitment, notice: Notice) -> None:
    """Execute the run again where the journal does not serve, to the signed run root.

    Raises DigestMismatchError where the repetition gives another run root, StoreError. The prover
    then answers nothing.
    """
    journal, job, last = states.journal, states.job, run.final_step
    if journal.checkpoints and _logs_fit(states, last):
        return
    notice("The run is executed again from its initial state: this takes as long as training.")
    if keeps_log(job):
        journal.logs[:] = _digests_of_files(states.store, job, last)
    states.rebuild(last)
    if not _gives(journal.checkpoints, job, run):
        raise DigestMismatchError(
            f"Neither the journal of {states.store.directory} nor its repetition gives the signed "
            "run root.",
            "Restore the run; `tallystick fsck` lists what is damaged.",
        )


def _logs_fit(states: RunStates, last: int) -> bool:
    """True if the journal's log digests are those of the chain in the state at the end."""
    if not keeps_log(states.job):
        return True
    try:
        return states.logs_fit(last)
    except StoreError:
        raise
    except (CounterpartyError, StorageError):
        return False  # the end is not stored, and a log before it is not the journal's


def _digests_of_files(store: RunStore, job: Job, last: int) -> list[bytes]:
    """The digests of the run's log files. The chain in the states confirms or refutes them."""
    shape, found = LogShape(job), []
    for step in range(last):
        with shape.open(store, step, None, verify=False) as reader:
            found.append(reader.digest)
    return found
