"""Layouts and lengths of the fields of queries and of answers' bodies (PROTOCOL 2.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

from tallystick.commit.encoding import HASH_BYTES, Reader, Writer
from tallystick.limits import LIMITS
from tallystick.opening.views import View
from tallystick.protocol.bodies import Body, Hashes

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

_VIEWS = {"needs": 1, "blocks": 2, "states": 3, "witness": 4, "terms": 5}
_VIEW_NAMES = {code: name for name, code in _VIEWS.items()}


def _write_view(out: Writer, view: View) -> None:
    out.u8(_VIEWS[view.kind]).u64(view.a).u64(view.b).u64(view.c)


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


# --- lengths --------------------------------------------------------------------------------------
def list_bytes(count: int) -> int:
    """Bytes of a counted list of so many hashes."""
    return U64_BYTES + HASH_BYTES * count


def path_bytes(leaves: int) -> int:
    """Bytes of an inclusion proof in a tree of so many leaves, at most."""
    return list_bytes(max(leaves - 1, 0).bit_length())


def attributes_fit(attributes: bytes, inputs: int) -> bool:
    """True if a reader takes the record of a node with these attributes and number of inputs."""
    return len(attributes) <= LIMITS.attribute_bytes and inputs <= LIMITS.node_inputs
