"""What the referee asks: one class per kind, with its binary layout (PROTOCOL 2.1)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from tallystick.commit.encoding import Reader, Writer, tag
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS
from tallystick.numerics.opening.views import View

QUERY_TAG = tag("query/1")
DEPTH = 5  # PROTOCOL 2.4
INPUT, OUTPUT = 0, 1  # PROTOCOL 2.2


@dataclass(frozen=True)
class Checkpoints:
    """State roots of the run's checkpoints of these indices, proved."""

    KIND: ClassVar[int] = 1
    indices: tuple[int, ...]


@dataclass(frozen=True)
class States:
    """Roots of state[s] for these steps."""

    KIND: ClassVar[int] = 2
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Loss:
    """What the loss chain of state[step + 1] was made of."""

    KIND: ClassVar[int] = 3
    step: int


@dataclass(frozen=True)
class Nodes:
    """Number and tree root of the nodes of a step."""

    KIND: ClassVar[int] = 4
    step: int


@dataclass(frozen=True)
class NodeHashes:
    """Hashes of the parts of a range of the node tree."""

    KIND: ClassVar[int] = 5
    step: int
    first: int
    count: int


@dataclass(frozen=True)
class NodeRecord:
    """One node as executed, with its inclusion proof."""

    KIND: ClassVar[int] = 6
    step: int
    node: int


@dataclass(frozen=True)
class Slot:
    """The tensor digest of a slot of state[step], proved."""

    KIND: ClassVar[int] = 7
    step: int
    name: str


@dataclass(frozen=True)
class TensorHashes:
    """Hashes of the parts of a range of a tensor's leaves; `side` is INPUT or OUTPUT."""

    KIND: ClassVar[int] = 8
    step: int
    node: int
    side: int
    operand: int
    first: int
    count: int


@dataclass(frozen=True)
class Leaf:
    """The bytes of one leaf of a tensor."""

    KIND: ClassVar[int] = 9
    step: int
    node: int
    side: int
    operand: int
    leaf: int


@dataclass(frozen=True)
class Values:
    """Values of a quantity below an output element (PROTOCOL 6.4)."""

    KIND: ClassVar[int] = 10
    step: int
    node: int
    output: int
    element: int
    path: tuple[int, ...]
    view: View


@dataclass(frozen=True)
class Opening:
    """A tensor opening of some leaves of an operand."""

    KIND: ClassVar[int] = 11
    step: int
    node: int
    operand: int
    leaves: tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """One record of the data, proved."""

    KIND: ClassVar[int] = 12
    index: int


@dataclass(frozen=True)
class Log:
    """The section digests of a step's rounding log, bound to the states before and after it."""

    KIND: ClassVar[int] = 13
    step: int


@dataclass(frozen=True)
class LogHashes:
    """Hashes of the parts of a range of a section's blocks."""

    KIND: ClassVar[int] = 14
    step: int
    section: int
    first: int
    count: int


@dataclass(frozen=True)
class LogBlock:
    """One block of a section, proved."""

    KIND: ClassVar[int] = 15
    step: int
    section: int
    block: int


Query = (
    Checkpoints | States | Loss | Nodes | NodeHashes | NodeRecord | Slot | TensorHashes | Leaf
    | Values | Opening | Record | Log | LogHashes | LogBlock
)  # fmt: skip
KINDS: dict[int, type[Query]] = {
    kind.KIND: kind
    for kind in (
        Checkpoints, States, Loss, Nodes, NodeHashes, NodeRecord, Slot, TensorHashes, Leaf,
        Values, Opening, Record, Log, LogHashes, LogBlock,
    )
}  # fmt: skip
_VIEWS = {"needs": 1, "blocks": 2, "states": 3, "witness": 4, "terms": 5}
_VIEW_NAMES = {code: name for name, code in _VIEWS.items()}


def encode_query(query: Query) -> bytes:
    """The layout of `query` (PROTOCOL 2.1)."""
    out = Writer(QUERY_TAG).u8(query.KIND)
    for field in fields(query):
        value = getattr(query, field.name)
        if field.name == "side":
            out.u8(value)
        elif isinstance(value, int):
            out.u64(value)
        elif isinstance(value, str):
            out.text(value)
        elif isinstance(value, View):
            out.u8(_VIEWS[value.kind]).u64(value.a).u64(value.b).u64(value.c)
        else:
            out.u64(len(value))
            for item in value:
                out.u64(item)
    return out.finish()


def decode_query(data: bytes) -> Query:
    """Inverse of encode_query for untrusted bytes. Raises CorruptFileError.

    Only the layout is checked; whether the run has such a step or node is the prover's matter.
    """
    if len(data) > LIMITS.query_bytes:
        raise CorruptFileError("A query is longer than any query is.", "Refuse it.")
    source = Reader(data, "query")
    source.expect(QUERY_TAG)
    kind = KINDS.get(source.u8())
    if kind is None:
        source.fail("its kind is unknown")
    given: dict[str, object] = {}
    for field in fields(kind):
        if field.name == "side":
            given[field.name] = source.u8()
        elif field.type == "int":
            given[field.name] = source.u64()
        elif field.type == "str":
            given[field.name] = source.text()
        elif field.type == "View":
            name = _VIEW_NAMES.get(source.u8())
            if name is None:
                source.fail("its view is unknown")
            given[field.name] = View(name, source.u64(), source.u64(), source.u64())
        else:
            count = source.count(LIMITS.query_bytes // 8, "numbers")
            given[field.name] = tuple(source.u64() for _ in range(count))
    source.end()
    return kind(**given)  # type: ignore[arg-type]
