"""The referee's queries: one class per kind (PROTOCOL 2.1), here by number, and read.

A class defines its kind. Its fields are its layout. `check` refuses a query that does not fit a job
and a run. `layout` gives the body of the answer and that body's layout. `most` is the greatest
length of a true body (2.6.1). The kinds about the nodes of a step stand in queries_step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallystick.commit import merkle
from tallystick.commit.encoding import HASH_BYTES, Reader
from tallystick.commit.job import JobCommitment
from tallystick.commit.log import Section
from tallystick.commit.records import is_long, part_count
from tallystick.commit.signing import RunCommitment
from tallystick.commit.state import CHAIN_SLOTS
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS
from tallystick.protocol import bodies as b
from tallystick.protocol.facts import INPUT as INPUT
from tallystick.protocol.facts import OUTPUT as OUTPUT
from tallystick.protocol.facts import Facts
from tallystick.protocol.messages import DEPTH as DEPTH
from tallystick.protocol.messages import (
    HASH,
    PARTS,
    QUERY_TAG,
    U32,
    U64,
    U64_BYTES,
    Layout,
    Query,
    ascending,
    below,
    blob,
    exactly,
    fields_of,
    hashes,
    list_bytes,
    parts_bytes,
    path_bytes,
    slot_path,
    subtree,
)
from tallystick.protocol.messages import encode_query as encode_query
from tallystick.protocol.queries_step import OPENING_HEAD as OPENING_HEAD
from tallystick.protocol.queries_step import Leaf as Leaf
from tallystick.protocol.queries_step import NodeHashes as NodeHashes
from tallystick.protocol.queries_step import NodeRecord as NodeRecord
from tallystick.protocol.queries_step import Nodes as Nodes
from tallystick.protocol.queries_step import Opening as Opening
from tallystick.protocol.queries_step import Side as Side
from tallystick.protocol.queries_step import TensorHashes as TensorHashes
from tallystick.protocol.queries_step import Values as Values
from tallystick.protocol.queries_step import record_bytes as record_bytes


# --- about a run: checkpoints, states, losses, slots, records ------------------------------------
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


# --- about the rounding log of a step ------------------------------------------------------------
def _check_log(step: int, facts: Facts, run: RunCommitment) -> None:
    below(step, run.final_step, "step")
    if not facts.contract.keeps_log:
        raise UsageError("This job's contract keeps no logs.", "Send no query about logs.")


def _section(number: int, step: int, facts: Facts, run: RunCommitment) -> Section:
    _check_log(step, facts, run)
    sections = facts.at(step).sections
    if number >= len(sections):
        raise UsageError(f"There is no section {number}.", "Name a section of the program.")
    return sections[number]


@dataclass(frozen=True)
class Log(Query[b.LogBody]):
    """The section digests of a step's rounding log, bound to the states before and after it."""

    KIND = 13
    layout = Layout(b.LogBody, (HASH, hashes(), hashes(LIMITS.log_sections), hashes()))
    step: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        _check_log(self.step, facts, run)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return HASH_BYTES + 2 * slot_path(facts) + list_bytes(len(facts.at(self.step).sections))


@dataclass(frozen=True)
class LogHashes(Query[b.BlocksBody]):
    """Hashes of the parts of a range of a section's blocks."""

    KIND = 14
    layout = Layout(b.BlocksBody, (U64, PARTS))
    step: int
    section: int
    first: int
    count: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        subtree(_section(self.section, self.step, facts, run).blocks, self.first, self.count)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return U64_BYTES + parts_bytes(self.count)


@dataclass(frozen=True)
class LogBlock(Query[b.BlockBody]):
    """One block of a section, proved."""

    KIND = 15
    layout = Layout(b.BlockBody, (blob(LIMITS.log_block_bytes), hashes()))
    step: int
    section: int
    block: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        if self.block >= _section(self.section, self.step, facts, run).blocks:
            raise UsageError(f"There is no block {self.block}.", "Name a block of the section.")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        blocks = facts.at(self.step).sections[self.section].blocks
        return U64_BYTES + LIMITS.log_block_bytes + path_bytes(blocks)


# --- all kinds -----------------------------------------------------------------------------------
KINDS: dict[int, type[Query[Any]]] = {
    kind.KIND: kind
    for kind in (
        Checkpoints, States, Loss, Nodes, NodeHashes, NodeRecord, Slot, TensorHashes, Leaf,
        Values, Opening, Record, Log, LogHashes, LogBlock, RecordPart,
    )
}  # fmt: skip


def decode_query(data: bytes) -> Query[Any]:
    """Inverse of encode_query for untrusted bytes. Raises CorruptFileError.

    Only the layout is checked; `Query.check` refuses a step or a node that the run does not have.
    """
    if len(data) > LIMITS.query_bytes:
        raise CorruptFileError("A query is longer than any query is.", "Refuse it.")
    source = Reader(data, "query")
    source.expect(QUERY_TAG)
    kind = KINDS.get(source.u8())
    if kind is None:
        source.fail("its kind is unknown")
    given = {name: item.read(source) for name, item in fields_of(kind)}
    source.end()
    return kind(**given)
