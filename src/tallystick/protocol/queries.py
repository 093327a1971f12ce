"""The referee's queries: one class per kind (PROTOCOL 2.1), here by number, written and read.

A class defines its kind. Its fields are its layout. `check` refuses a query that does not fit a job
and a run. `layout` gives the body of the answer and that body's layout. `most` is the greatest
length of a true body (2.6.1). The classes stand in queries_run, queries_step and queries_log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, cast

from tallystick.commit.encoding import Reader, Writer, tag
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS
from tallystick.protocol.facts import INPUT as INPUT
from tallystick.protocol.facts import OUTPUT as OUTPUT
from tallystick.protocol.layouts import (
    NUMBERS,
    TEXT,
    U8,
    U64,
    VIEW,
    Item,
)
from tallystick.protocol.queries_log import Log as Log
from tallystick.protocol.queries_log import LogBlock as LogBlock
from tallystick.protocol.queries_log import LogHashes as LogHashes
from tallystick.protocol.queries_run import Checkpoints as Checkpoints
from tallystick.protocol.queries_run import Loss as Loss
from tallystick.protocol.queries_run import Record as Record
from tallystick.protocol.queries_run import RecordPart as RecordPart
from tallystick.protocol.queries_run import Slot as Slot
from tallystick.protocol.queries_run import States as States
from tallystick.protocol.queries_run import record_answer_bytes as record_answer_bytes
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
from tallystick.protocol.query import DEPTH as DEPTH
from tallystick.protocol.query import Query

QUERY_TAG = tag("query/1")


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
