"""Queries about a run: checkpoints, states, losses, slots, records (PROTOCOL 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.commit import merkle
from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.job import JobCommitment
from tallystick.commit.records import is_long, part_count
from tallystick.commit.signing import RunCommitment
from tallystick.commit.state import CHAIN_SLOTS
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.protocol import bodies as b
from tallystick.protocol.facts import Facts
from tallystick.protocol.layouts import (
    HASH,
    U32,
    U64_BYTES,
    Layout,
    blob,
    exactly,
    hashes,
    list_bytes,
    path_bytes,
)
from tallystick.protocol.query import Query, ascending, below, slot_path


@dataclass(frozen=True)
class Checkpoints(Query[b.RootsBody]):
    """State roots of the run's checkpoints of these indices, proved."""

    KIND = 1
    indices: tuple[int, ...]

    @property
    def layout(self) -> Layout[b.RootsBody]:
        return Layout(b.RootsBody, (exactly(len(self.indices)), hashes(LIMITS.proof_hashes)))

    def check(self, facts: Facts, run: RunCommitment) -> None:
        ascending(self.indices, run.checkpoints, "checkpoint")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        proof = merkle.multi_proof_length(self.indices, run.checkpoints)
        return HASH_BYTES * len(self.indices) + list_bytes(proof)


@dataclass(frozen=True)
class States(Query[b.RootsBody]):
    """Roots of state[s] for these steps."""

    KIND = 2
    steps: tuple[int, ...]

    @property
    def layout(self) -> Layout[b.RootsBody]:
        return Layout(b.RootsBody, (exactly(len(self.steps)),))

    def check(self, facts: Facts, run: RunCommitment) -> None:
        ascending(self.steps, run.final_step + 1, "state")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return HASH_BYTES * len(self.steps)


@dataclass(frozen=True)
class Loss(Query[b.LossBody]):
    """The parts of the loss chain of state[step + 1]."""

    KIND = 3
    layout = Layout(b.LossBody, (HASH, U32, hashes()))
    step: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        below(self.step, run.final_step, "step")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return HASH_BYTES + 4 + slot_path(facts)


@dataclass(frozen=True)
class Slot(Query[b.SlotBody]):
    """The tensor digest of a slot of state[step], proved."""

    KIND = 7
    layout = Layout(b.SlotBody, (HASH, hashes()))
    step: int
    name: str

    def check(self, facts: Facts, run: RunCommitment) -> None:
        below(self.step, run.final_step + 1, "state")
        if self.name not in facts.program.state_types and self.name not in CHAIN_SLOTS:
            raise UsageError(
                f"The state has no slot {self.name[:80]!r}.", "Name a slot of the program."
            )

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return HASH_BYTES + slot_path(facts)


@dataclass(frozen=True)
class Record(Query[b.RecordBody]):
    """One record of the data, proved."""

    KIND = 12
    layout = Layout(b.RecordBody, (blob(LIMITS.record_bytes), hashes()))
    index: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        if not isinstance(facts.job, JobCommitment):
            raise UsageError("A job of format 2 is asked for parts of records.", "Ask kind 16.")
        below(self.index, facts.job.record_count, "record")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return record_answer_bytes(facts)


def record_answer_bytes(facts: Facts, data: int | None = None) -> int:
    """Bytes of the answer with a record of data set `data`, at most; by default of the one that the
    steps of `facts` read."""
    timetable = facts.job.timetable
    data = timetable.programs[facts.number].data if data is None else data
    if data is None:
        return 0
    schema, path = facts.terms.schemas[data], path_bytes(timetable.data[data].record_count)
    if isinstance(facts.job, JobCommitment):
        return U64_BYTES + schema.record_size + path
    if is_long(schema):
        return U64_BYTES + LIMITS.record_part_bytes + path_bytes(part_count(schema)) + path
    return U64_BYTES + schema.record_size + list_bytes(0) + path


@dataclass(frozen=True)
class RecordPart(Query[b.PartBody]):
    """One part of a record of a data set, proved (COMMITMENTS 8.6)."""

    KIND = 16
    layout = Layout(b.PartBody, (blob(LIMITS.record_bytes), hashes(), hashes()))
    data: int
    index: int
    part: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        if isinstance(facts.job, JobCommitment):
            raise UsageError("A job of format 1 is asked for whole records.", "Ask kind 12.")
        below(self.data, len(facts.job.timetable.data), "data set")
        below(self.index, facts.job.timetable.data[self.data].record_count, "record")
        below(self.part, part_count(facts.terms.schemas[self.data]), "part of a record")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return record_answer_bytes(facts, self.data)
