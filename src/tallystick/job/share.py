"""A share of a step as a job: the task that a worker's signed claim is about (docs/adr/0024).

A *share job* is an ordinary job of format 2 with one step: from the slots that the micro-batches
read, it computes what one worker of a run sends for an aligned subtree of them. Referee, prover,
evidence and judge need nothing new for it. Every worker of the run computes its digest from the
job, the step and the slots' digests, and needs no other byte of the state for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from tallystick.commit.checkpoint import Checkpoint, run_root
from tallystick.commit.data import batch_columns
from tallystick.commit.job import JobCommitment2, scalars_digest
from tallystick.commit.order import batch_indices
from tallystick.commit.signing import Envelope, PrivateKey, PublicKey, RunCommitment, sign_run
from tallystick.commit.state import (
    CHAIN_START,
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    chain_digest,
    extend_loss_chain,
    state_root,
)
from tallystick.commit.tensor import DTYPES, Array, tensor_digest
from tallystick.commit.timetable import ScheduleTurn, Timetable
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.parts import Parts, ProgramPart, Records
from tallystick.job.writing import fills_of, write_job
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.types import TensorType
from tallystick.program.share import Share, Tree

NAME = "share"  # of the program and of the data set
# Bits of the constant that a share job has as its loss.
LOSS_BITS = 0


def zeros(type_: TensorType) -> Array:
    """The value before the step of a slot that the share makes."""
    return np.zeros(type_.shape, DTYPES[type_.dtype])


@dataclass
class Shares:
    """The shares of the steps of `job`; each text is made once.

    Raises UsageError for a job under a contract with logs, whose bits a share does not fix.
    """

    job: Job
    _known: dict[tuple[int, Tree], Share] = field(default_factory=dict)
    _zeros: dict[TensorType, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        contract = self.job.commitment.contract
        if parse_contract(contract).keeps_log:
            raise UsageError(
                f"Workers cannot check each other under {contract}: the bits of a share follow "
                "its log.",
                "Choose a contract without a log, or train without --check-workers.",
            )

    def share(self, step: int, tree: Tree) -> Share:
        """The share `tree` of step `step`. Raises UsageError as Share."""
        timetable = self.job.commitment.timetable
        number = timetable.at(step).program
        found = self._known.get((number, tree))
        if found is None:
            parts = timetable.programs[number].micro_batches
            found = self._known[number, tree] = Share(self.job.texts[number], parts, tree)
        return found

    def task(self, step: int, tree: Tree, digests: Mapping[str, bytes]) -> ShareTask:
        """The task of step `step`; `digests` has the tensor digests of at least the slots that the
        share reads."""
        share = self.share(step, tree)
        for type_ in share.made.values():
            if type_ not in self._zeros:
                self._zeros[type_] = tensor_digest(zeros(type_))
        made = {name: self._zeros[type_] for name, type_ in share.made.items()}
        return ShareTask(self.job, step, share, {n: digests[n] for n in share.reads}, made)


@dataclass(frozen=True)
class ShareTask:
    """One share of one step: its job, and what a claim about it says.

    `read` are the digests of the slots that the share reads, `before` those of the slots that it
    makes, as they are before.
    """

    job: Job
    step: int
    share: Share
    read: Mapping[str, bytes]
    before: Mapping[str, bytes]

    @cached_property
    def parts(self) -> Parts:
        """Program and records of the share job. Its only batch has the number of the step's, which
        makes the random key that of the step (COMMITMENTS 7.6.6)."""
        c = self.job.commitment
        occasion = c.timetable.at(self.step)
        entry = c.timetable.programs[occasion.program]
        parts, program = self.share.parts, self.share.program
        if entry.data is None:
            part = ProgramPart.alone(NAME, program, None, 1, first=occasion.number)
            return Parts((part,), ())
        rows = entry.rows
        indices = c.timetable.indices(occasion)[parts.start * rows : parts.stop * rows]
        batch = batch_columns(self.job.columns_of[entry.data], indices)
        count, seed = len(indices), c.timetable.data[entry.data].order_seed
        part = ProgramPart.alone(NAME, program, 0, count, first=occasion.number)
        schema = self.job.schemas[entry.data]
        places = _places(seed, count, occasion.number)
        columns = {name: _at(array, places) for name, array in batch.items()}
        return Parts((part,), (Records(NAME, schema, columns, seed),))

    @cached_property
    def scalars(self) -> dict[str, float]:
        """The scalars that the micro-batches read, as they are in the step."""
        terms = self.job.loose_terms
        return {n: terms.scalar(n, self.step) for n in self.share.program.scalar_names}

    @cached_property
    def commitment(self) -> JobCommitment2:
        """What the share job's digest covers."""
        c = self.job.commitment
        parts = self.parts
        timetable = Timetable(
            tuple(part.entry() for part in parts.programs),
            tuple(records.entry() for records in parts.data),
            (ScheduleTurn(0, 1),),
        )
        return JobCommitment2(
            contract=c.contract,
            genesis_root=self._root(self.before, CHAIN_START),
            timetable=timetable,
            rng_seed=c.random_key(self.step)[0],
            steps=1,
            checkpoint_interval=1,
            scalars_digest=scalars_digest(self.scalars),
            stop_on_non_finite=False,
        )

    @cached_property
    def digest(self) -> bytes:
        """The share job's digest."""
        return self.commitment.digest()

    def _root(self, made: Mapping[str, bytes], chain: bytes) -> bytes:
        chains = {LOSS_CHAIN_SLOT: chain_digest(chain), LOG_CHAIN_SLOT: chain_digest(CHAIN_START)}
        return state_root({**self.read, **made, **chains})

    def checkpoints(self, made: Mapping[str, bytes]) -> list[Checkpoint]:
        """The checkpoints of a run of the share job that ends with these digests of the slots that
        it makes."""
        if set(made) != set(self.before):
            raise UsageError(
                "The values are not those of the share.", "Give one value for each slot."
            )
        after = self._root(made, extend_loss_chain(CHAIN_START, 0, 0.0))
        return [(0, self.commitment.genesis_root), (1, after)]

    def statement(self, made: Mapping[str, bytes], signer: PublicKey) -> RunCommitment:
        """What a worker signs who sends values with these digests."""
        checkpoints = self.checkpoints(made)
        return RunCommitment(
            job_digest=self.digest,
            run_root=run_root(self.digest, checkpoints),
            final_step=1,
            final_state_root=checkpoints[1][1],
            checkpoints=2,
            signer=signer,
        )

    def claim(self, made: Mapping[str, bytes], key: PrivateKey) -> Envelope:
        """A worker's signed claim: the run commitment of the share job."""
        return sign_run(key, self.statement(made, key.public))

    def write(self, directory: Path, state: Mapping[str, Array]) -> Job:
        """Write the share job; `state` has at least the slots that it reads, on the host.

        Raises UsageError where the directory holds something or the state is another one,
        StorageError.
        """
        slots = {name: np.asarray(state[name], order="C") for name in self.share.reads}
        slots |= {name: zeros(type_) for name, type_ in self.share.made.items()}
        types = self.share.program.state_types
        ordered = {name: slots[name] for name in types}
        parts = self.share.parts
        about = {
            "share": f"micro-batches {parts.start} to {parts.stop - 1} of step {self.step} of the "
            f"job {self.job.digest.hex()}"
        }
        for name, digest in self.read.items():
            if tensor_digest(ordered[name]) != digest:
                raise UsageError(
                    f"The slot {name} does not have the value that the share read.",
                    "Give the state before the step.",
                )
        made = Job(
            directory,
            self.commitment,
            dict(self.scalars),
            tuple(records.schema for records in self.parts.data),
            fills_of(ordered),
            None,
            None,
            None,
            about,
        )
        return write_job(made, self.parts, ordered)


def _places(seed: int, count: int, number: int) -> Sequence[int]:
    """Of each place of batch `number`, the record there (COMMITMENTS 8.4): all records are of one
    batch, so the number of the batch is that of the epoch."""
    return [int(i) for i in batch_indices(seed, count, number, count)]


def _at(batch: Array, places: Sequence[int]) -> Array:
    """Records whose order puts `batch`'s rows in their places."""
    found = np.empty_like(batch)
    found[np.asarray(places)] = batch
    return found
