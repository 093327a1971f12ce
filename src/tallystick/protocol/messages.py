"""A query to a party and its answer: layouts of their fields, lengths, encoding, the signed form
(PROTOCOL 2.1 to 2.8). The kinds of queries are in `protocol.queries`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from tallystick.commit import merkle
from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, tag
from tallystick.commit.signed import SIGNATURE_BYTES as SIGNATURE_BYTES
from tallystick.commit.signed import open_compact, sign_compact
from tallystick.commit.signing import PrivateKey, PublicKey, RunCommitment
from tallystick.errors import CannotCheckError, UsageError
from tallystick.limits import LIMITS
from tallystick.opening.views import View
from tallystick.protocol.bodies import Body, Hashes
from tallystick.protocol.facts import Facts

# --- layouts of fields and bodies ----------------------------------------------------------------
U64_BYTES = 8
_PROOF = 64  # hashes of an inclusion proof: a tree has fewer than 2^64 leaves


class Item(NamedTuple):
    """The writer of one field, and its reader for untrusted bytes."""

    write: Callable[[Writer, Any], object]
    read: Callable[[Reader], Any]


def _write_hashes(out: Writer, hashes: Hashes) -> None:
    for h in hashes:
        out.hash(h)


def _write_list(out: Writer, hashes: Hashes) -> None:
    _write_hashes(out.u64(len(hashes)), hashes)


def blob(limit: int) -> Item:
    """A u64 length of at most `limit`, then the bytes."""
    return Item(Writer.blob, lambda source: source.blob(limit))


def hashes(limit: int = _PROOF) -> Item:
    """A counted list of at most `limit` hashes."""
    return Item(_write_list, lambda source: tuple(source.hashes(limit)))


def exactly(count: int) -> Item:
    """Exactly `count` hashes, one after the other."""
    return Item(_write_hashes, lambda source: tuple(source.hash() for _ in range(count)))


HASH = Item(Writer.hash, Reader.hash)
U8 = Item(Writer.u8, Reader.u8)
U32 = Item(Writer.u32, Reader.u32)
U64 = Item(Writer.u64, Reader.u64)
TEXT = Item(Writer.text, Reader.text)
REST = Item(Writer.raw, lambda source: source.raw(source.left))
# It takes every hash that is left. The query says how many there must be (2.4).
PARTS = Item(_write_hashes, lambda s: tuple(s.hash() for _ in range(s.left // HASH_BYTES)))

VIEW_CODES = {"needs": 1, "blocks": 2, "states": 3, "witness": 4, "terms": 5}
_VIEW_NAMES = {code: name for name, code in VIEW_CODES.items()}


def _write_view(out: Writer, view: View) -> None:
    out.u8(VIEW_CODES[view.kind]).u64(view.a).u64(view.b).u64(view.c)


def _read_view(source: Reader) -> View:
    name = _VIEW_NAMES.get(source.u8())
    if name is None:
        source.fail("its view is unknown")
    return View(name, source.u64(), source.u64(), source.u64())


def _write_numbers(out: Writer, numbers: tuple[int, ...]) -> None:
    out.u64(len(numbers))
    for number in numbers:
        out.u64(number)


def _read_numbers(source: Reader) -> tuple[int, ...]:
    count = source.count(LIMITS.query_bytes // 8, "numbers")
    return tuple(source.u64() for _ in range(count))


NUMBERS = Item(_write_numbers, _read_numbers)
VIEW = Item(_write_view, _read_view)

B = TypeVar("B", bound=Body)


@dataclass(frozen=True)
class Layout(Generic[B]):
    """A body's class, and the layout of its first fields. A field without an item is not sent."""

    body: type[B]
    items: tuple[Item, ...]

    def encode(self, body: Body) -> bytes:
        """The bytes of `body`, which is of the layout's class."""
        assert isinstance(body, self.body)
        out = Writer()
        for field, item in zip(fields(body), self.items, strict=False):
            item.write(out, getattr(body, field.name))
        return out.finish()

    def decode(self, data: bytes) -> B:
        """The body in untrusted bytes. Raises CorruptFileError (PROTOCOL 2.7)."""
        source = Reader(data, "answer")
        body = self.body(*[item.read(source) for item in self.items])
        source.end()
        return body


# --- lengths -------------------------------------------------------------------------------------
DEPTH = 5  # PROTOCOL 2.4


def list_bytes(count: int) -> int:
    """Bytes of a counted list of `count` hashes."""
    return U64_BYTES + HASH_BYTES * count


def path_bytes(leaves: int) -> int:
    """The most bytes of an inclusion proof in a tree with this many leaves."""
    return list_bytes(max(leaves - 1, 0).bit_length())


def attributes_fit(attributes: bytes, inputs: int) -> bool:
    """True if a reader takes the record of a node with these attributes and number of inputs."""
    return len(attributes) <= LIMITS.attribute_bytes and inputs <= LIMITS.node_inputs


def parts_bytes(count: int) -> int:
    """Bytes of the hashes of the parts of a range with this many leaves."""
    return HASH_BYTES * len(merkle.parts_of(0, count, DEPTH))


def slot_path(facts: Facts) -> int:
    """Bytes of the inclusion proof of a slot, at most."""
    return path_bytes(len(facts.slots))


# --- queries -------------------------------------------------------------------------------------
class Query(ABC, Generic[B]):
    """A query to one party. Subclasses are dataclasses whose fields are the layout's."""

    KIND: ClassVar[int]

    @property
    @abstractmethod
    def layout(self) -> Layout[B]:
        """The body of the answer, and its layout."""

    @abstractmethod
    def check(self, facts: Facts, run: RunCommitment) -> None:
        """Raise UsageError for a query that no referee of this job and run asks."""

    @abstractmethod
    def most(self, facts: Facts, run: RunCommitment) -> int:
        """Bytes of a true body at most; the query passes `check`."""


QUERY_TAG = tag("query/1")
# By the declared type of a field.
_ITEMS = {
    "int": U64,
    "Side": U8,
    "str": TEXT,
    "tuple[int, ...]": NUMBERS,
    "View": VIEW,
}


def fields_of(kind: type[Query[Any]]) -> Iterator[tuple[str, Item]]:
    """Names and layouts of a kind's fields, in order."""
    for field in fields(cast(Any, kind)):
        yield field.name, _ITEMS[str(field.type)]


def encode_query(query: Query[Any]) -> bytes:
    """The layout of `query` (PROTOCOL 2.1)."""
    out = Writer(QUERY_TAG).u8(query.KIND)
    for name, item in fields_of(type(query)):
        item.write(out, getattr(query, name))
    return out.finish()


# --- checks --------------------------------------------------------------------------------------
def below(number: int, count: int, what: str) -> None:
    """Raise UsageError unless there is such a number among `count`."""
    if number >= count:
        raise UsageError(f"There is no {what} {number} of {count}.", "Ask for one that exists.")


def ascending(numbers: tuple[int, ...], count: int, what: str) -> None:
    """Raise UsageError unless the numbers ascend and are below `count`."""
    if not numbers or any(a >= b for a, b in pairwise(numbers)):
        raise UsageError(f"Numbers of a query for {what}s must ascend.", "Sort them.")
    below(numbers[-1], count, what)


def subtree(size: int, first: int, count: int) -> None:
    """Raise UsageError unless the range is one that a tree of `size` is split into (2.4)."""
    start, length = 0, size
    while (start, length) != (first, count):
        if length <= 1:
            raise UsageError(f"No {count} leaves at {first} are a part of {size}.", "Descend.")
        half = 1 << ((length - 1).bit_length() - 1)
        start, length = (start, half) if first < start + half else (start + half, length - half)


# --- answers -------------------------------------------------------------------------------------
ANSWER_TAG = tag("answer/1")
ANSWER_TYPE = "application/vnd.tallystick.answer.v1"
ANSWERED, UNABLE = 0, 1


@dataclass(frozen=True)
class Answer:
    """A party's answer to `query`; `body` is the encoded body, empty when `status` is UNABLE."""

    job_digest: bytes
    run_root: bytes
    query: bytes
    status: int
    body: bytes

    def to_bytes(self) -> bytes:
        """The signed layout (PROTOCOL 2.3)."""
        out = Writer(ANSWER_TAG).hash(self.job_digest).hash(self.run_root)
        return out.blob(self.query).u8(self.status).raw(self.body).finish()


def sign_answer(key: PrivateKey, answer: Answer) -> bytes:
    """The signed answer (PROTOCOL 2.5)."""
    return sign_compact(key, ANSWER_TYPE, answer.to_bytes())


def make_answer(
    key: PrivateKey, job_digest: bytes, run_root: bytes, query: Query[Any], body: Body | None
) -> bytes:
    """Sign `body` as the answer to `query`; None says that the party is unable.

    Raises CannotCheckError, and signs nothing, for an answer over the limit. A referee would ignore
    such an answer (PROTOCOL 2.6), and no referee asks for one (2.6.1).
    """
    status = UNABLE if body is None else ANSWERED
    data = b"" if body is None else query.layout.encode(body)
    answer = Answer(job_digest, run_root, encode_query(query), status, data)
    size = len(answer.to_bytes()) + 8 + SIGNATURE_BYTES
    if size > LIMITS.answer_bytes:
        raise CannotCheckError(
            f"The answer to this query has {size} bytes, over the limit of {LIMITS.answer_bytes}.",
            "Nothing was signed. Let a referee of this build or a newer one ask.",
        )
    return sign_answer(key, answer)


def open_answer(message: bytes, signer: PublicKey) -> Answer:
    """The answer in a message, its signature verified.

    Raises CorruptFileError where the message is no signed answer of `signer` at all: then no party
    has stated anything (PROTOCOL 2.6).
    """
    data = open_compact(message, ANSWER_TYPE, signer, LIMITS.answer_bytes, "signed answer")
    inner = Reader(data, "answer")
    inner.expect(ANSWER_TAG)
    job, run, query = inner.hash(), inner.hash(), inner.blob(LIMITS.query_bytes)
    status = inner.u8()
    head = len(ANSWER_TAG) + 2 * HASH_BYTES + 8 + len(query) + 1
    return Answer(job, run, query, status, data[head:])
