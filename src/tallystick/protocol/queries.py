"""The referee's queries: one class per kind (PROTOCOL 2.1).

A class defines its kind. Its fields are its layout. `check` refuses a query that does not fit a job
and a run. `layout` gives the body of the answer and that body's layout. `most` is the greatest
length of a true body (2.6.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, cast

from tallystick.commit import merkle
from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, tag
from tallystick.commit.job import JobCommitment
from tallystick.commit.log import Section
from tallystick.commit.records import is_long, part_count
from tallystick.commit.signing import RunCommitment
from tallystick.commit.state import CHAIN_SLOTS
from tallystick.commit.tensor import LEAF_BYTES
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS
from tallystick.opening.quantity import VALUE_DTYPES, opening_rule
from tallystick.opening.views import View, locate, view_dtypes
from tallystick.protocol import bodies as b
from tallystick.protocol.facts import INPUT as INPUT
from tallystick.protocol.facts import OUTPUT as OUTPUT
from tallystick.protocol.facts import Facts
from tallystick.protocol.layouts import (
    HASH,
    NUMBERS,
    PARTS,
    REST,
    TEXT,
    U8,
    U32,
    U64,
    U64_BYTES,
    VIEW,
    Item,
    Layout,
    attributes_fit,
    blob,
    exactly,
    hashes,
    list_bytes,
    path_bytes,
)
from tallystick.protocol.query import Query, ascending, below, subtree

QUERY_TAG = tag("query/1")
DEPTH = 5  # PROTOCOL 2.4
OPENING_HEAD = 64 + U64_BYTES * LIMITS.tensor_rank  # bytes of an opening before its leaves
Side = int  # INPUT or OUTPUT


def _parts_bytes(count: int) -> int:
    return HASH_BYTES * len(merkle.parts_of(0, count, DEPTH))


def _slot_path(facts: Facts) -> int:
    return path_bytes(len(facts.slots))


# --- the run --------------------------------------------------------------------------------------
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
        return HASH_BYTES + 4 + _slot_path(facts)


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
        return HASH_BYTES + _slot_path(facts)


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


# --- nodes of a step ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Nodes(Query[b.NodesBody]):
    """Number and tree root of the nodes of a step."""

    KIND = 4
    layout = Layout(b.NodesBody, (U64, HASH))
    step: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        below(self.step, run.final_step, "step")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return U64_BYTES + HASH_BYTES


@dataclass(frozen=True)
class NodeHashes(Query[b.HashesBody]):
    """Hashes of the parts of a range of the node tree."""

    KIND = 5
    layout = Layout(b.HashesBody, (PARTS,))
    step: int
    first: int
    count: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        below(self.step, run.final_step, "step")
        subtree(len(facts.at(self.step).program.nodes), self.first, self.count)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return _parts_bytes(self.count)


def record_bytes(facts: Facts, node: int) -> int:
    """Bytes of a node as executed (kind 6), at most."""
    operator, attributes, outputs = facts.structure(node)
    inputs = len(facts.operands(node))
    if not attributes_fit(attributes, inputs):
        return LIMITS.answer_bytes  # no reader takes such a record: the message is too long
    head = 4 + len(operator) + U64_BYTES + len(attributes)
    return head + list_bytes(inputs) + list_bytes(outputs) + path_bytes(len(facts.program.nodes))


@dataclass(frozen=True)
class NodeRecord(Query[b.NodeBody]):
    """One node as executed, with its inclusion proof."""

    KIND = 6
    layout = Layout(
        b.NodeBody,
        (
            TEXT,
            blob(LIMITS.attribute_bytes),
            hashes(LIMITS.node_inputs),
            hashes(LIMITS.node_outputs),
            hashes(),
        ),
    )
    step: int
    node: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        _check_node(self.step, self.node, facts, run)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return record_bytes(facts.at(self.step), self.node)


# --- tensors of a node ----------------------------------------------------------------------------
def _check_node(step: int, node: int, facts: Facts, run: RunCommitment) -> Facts:
    below(step, run.final_step, "step")
    there = facts.at(step)
    below(node, len(there.program.nodes), "node")
    return there


@dataclass(frozen=True)
class TensorHashes(Query[b.HashesBody]):
    """Hashes of the parts of a range of a tensor's leaves; `side` is INPUT or OUTPUT."""

    KIND = 8
    layout = Layout(b.HashesBody, (PARTS,))
    step: int
    node: int
    side: Side
    operand: int
    first: int
    count: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        there = _check_node(self.step, self.node, facts, run)
        header = there.header_at(self.node, self.side, self.operand)
        subtree(header.leaves, self.first, self.count)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return _parts_bytes(self.count)


@dataclass(frozen=True)
class Leaf(Query[b.BytesBody]):
    """The bytes of one leaf of a tensor."""

    KIND = 9
    layout = Layout(b.BytesBody, (blob(LIMITS.answer_bytes),))
    step: int
    node: int
    side: Side
    operand: int
    leaf: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        there = _check_node(self.step, self.node, facts, run)
        below(self.leaf, there.header_at(self.node, self.side, self.operand).leaves, "leaf")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return U64_BYTES + LEAF_BYTES


@dataclass(frozen=True)
class Opening(Query[b.BytesBody]):
    """A tensor opening of some leaves of an operand."""

    KIND = 11
    layout = Layout(b.BytesBody, (blob(LIMITS.answer_bytes),))
    step: int
    node: int
    operand: int
    leaves: tuple[int, ...]

    def check(self, facts: Facts, run: RunCommitment) -> None:
        there = _check_node(self.step, self.node, facts, run)
        ascending(self.leaves, there.header_at(self.node, INPUT, self.operand).leaves, "leaf")
        if len(self.leaves) > LIMITS.opening_leaves:
            raise UsageError(f"{len(self.leaves)} leaves are too many.", "Ask for fewer.")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        header = facts.at(self.step).header_at(self.node, INPUT, self.operand)
        proof = merkle.multi_proof_length(self.leaves, header.leaves) if self.leaves else 0
        data = sum(U64_BYTES + header.leaf_size(leaf) for leaf in self.leaves)
        return U64_BYTES + OPENING_HEAD + data + list_bytes(proof)


@dataclass(frozen=True)
class Values(Query[b.BytesBody]):
    """Values of a quantity below an output element (PROTOCOL 6.4)."""

    KIND = 10
    layout = Layout(b.BytesBody, (REST,))
    step: int
    node: int
    output: int
    element: int
    path: tuple[int, ...]
    view: View

    def check(self, facts: Facts, run: RunCommitment) -> None:
        """The quantity itself is not checked here: the prover asks the operator's rule for it."""
        _check_node(self.step, self.node, facts, run)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        rule = opening_rule(facts.at(self.step).site(self.node, self.output, self.element))
        dtypes = view_dtypes(locate(rule, self.path), self.view)
        return sum(VALUE_DTYPES[name].itemsize for name in dtypes)


# --- rounding logs --------------------------------------------------------------------------------
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
        return HASH_BYTES + 2 * _slot_path(facts) + list_bytes(len(facts.at(self.step).sections))


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
        return U64_BYTES + _parts_bytes(self.count)


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


# --- layout ---------------------------------------------------------------------------------------
KINDS: dict[int, type[Query[Any]]] = {
    kind.KIND: kind
    for kind in (
        Checkpoints, States, Loss, Nodes, NodeHashes, NodeRecord, Slot, TensorHashes, Leaf,
        Values, Opening, Record, Log, LogHashes, LogBlock, RecordPart,
    )
}  # fmt: skip
# By the declared type of a field.
_ITEMS = {
    "int": U64,
    "Side": U8,
    "str": TEXT,
    "tuple[int, ...]": NUMBERS,
    "View": VIEW,
}


def _fields(kind: type[Query[Any]]) -> Iterator[tuple[str, Item]]:
    """Names and layouts of a kind's fields, in order."""
    for field in fields(cast(Any, kind)):
        yield field.name, _ITEMS[str(field.type)]


def encode_query(query: Query[Any]) -> bytes:
    """The layout of `query` (PROTOCOL 2.1)."""
    out = Writer(QUERY_TAG).u8(query.KIND)
    for name, item in _fields(type(query)):
        item.write(out, getattr(query, name))
    return out.finish()


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
    given = {name: item.read(source) for name, item in _fields(kind)}
    source.end()
    return kind(**given)
