"""The files of a run, as its prover takes them: only what the signed commitment covers (PROTOCOL
1.4), and its rounding logs (2.1, 13 to 15).

The signature covers the run root, and so the checkpoints. Each checkpoint covers a state, and with
it the chains of losses and of log digests. No signature covers the journal itself. Where the
journal does not give the signed run root, or its logs are not those of the chain, the prover
executes the run again.

The chain in the state commits to a log. The files are the prover's own, so it answers with their
contents. A file that no longer gives the chain is damaged: the prover never signs it as an answer.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.commit import merkle
from tallystick.commit.checkpoint import checkpoint_steps, run_root
from tallystick.commit.log import BLOCK_BYTES, BOUNDED, block_hashes, log_digest
from tallystick.commit.signing import RunCommitment
from tallystick.commit.state import LOG_CHAIN_SLOT, extend_log_chain
from tallystick.contracts.replay.entries import Blocks
from tallystick.errors import CounterpartyError, DigestMismatchError, StorageError, StoreError
from tallystick.job.job import Job
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import BlockBody, BlocksBody, LogBody
from tallystick.prover.states import RunStates
from tallystick.run.logs.reader import LogReader, LogShape, keeps_log
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


class Logs:
    """The logs of a run whose contract keeps them. No valid query asks another run for a log."""

    def __init__(self, states: RunStates) -> None:
        self._states = states
        self._shape = LogShape(states.job)
        self._kept: tuple[int, int, Blocks | bytes, merkle.Tree] | None = None

    def hashes(self, query: q.LogHashes) -> BlocksBody:
        """The hashes of a range of a section's blocks."""
        _, tree = self._section(query.step, query.section)
        return BlocksBody(tree.size, tuple(tree.parts(query.first, query.count, q.DEPTH)))

    def block(self, query: q.LogBlock) -> BlockBody:
        """One block of a section."""
        blocks, tree = self._section(query.step, query.section)
        if isinstance(blocks, Blocks):
            data = blocks.block(query.block)
        else:
            data = blocks[query.block * BLOCK_BYTES : (query.block + 1) * BLOCK_BYTES]
        return BlockBody(data, tuple(tree.inclusion(query.block)))

    def log(self, query: q.Log) -> LogBody:
        """The section digests of a step's log, tied to the states around it."""
        step = query.step
        chain = self._states.at(step).state.log_chain
        _, before = self._states.slot(step, LOG_CHAIN_SLOT)
        _, after = self._states.slot(step + 1, LOG_CHAIN_SLOT)
        with self._open(step) as reader:
            digests = tuple(entry.digest for entry in reader.index)
        self._check_chain(step, extend_log_chain(chain, step, log_digest(step, digests)))
        return LogBody(chain, before, digests, after)

    def _check_chain(self, step: int, chain: bytes) -> None:
        """Raise DigestMismatchError unless `chain`, which the log of `step` gives, is the chain in
        the state after the step. A declared cheat's prover leaves this check out."""
        if chain != self._states.at(step + 1).state.log_chain:
            raise DigestMismatchError(
                f"The rounding log of step {step} is not the one this run committed to.",
                "Restore it; `tallystick fsck` lists what is damaged.",
            )

    def _open(self, step: int) -> LogReader:
        """Open the log of `step`, which must be the one that the journal names: the prover answers
        about no other."""
        digest = self._states.journal.logs[step]
        return self._shape.open(self._states.store, step, digest, verify=False)

    def _section(self, step: int, number: int) -> tuple[Blocks | bytes, merkle.Tree]:
        """A section's blocks and their tree. The section that was read last stays in memory."""
        if self._kept is None or self._kept[:2] != (step, number):
            found: Blocks | bytes
            with self._open(step) as reader:
                if self._shape.sections[number].form == BOUNDED:
                    found = reader.bounded(number)
                    hashes = found.hashes()
                else:
                    found = reader.published(number)
                    cuts = range(0, len(found), BLOCK_BYTES)
                    hashes = block_hashes([found[at : at + BLOCK_BYTES] for at in cuts])
            self._kept = (step, number, found, merkle.Tree(hashes))
        return self._kept[2:]
