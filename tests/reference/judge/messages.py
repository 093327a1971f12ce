"""Queries, and what their answers hold (PROTOCOL 2.1, 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reference.judge.encoding import MalformedError, Reader, blob, sha, tag, text, u8, u64
from reference.judge.merkle import (
    Type,
    leaf_size,
    leaves_of,
    parts,
    read_opening,
)


@dataclass(frozen=True)
class Query:
    """A query's bytes, and the reader of a body that follows 2.1 for it."""

    data: bytes
    read: Callable[[Reader], Any]


@dataclass
class Record:
    """An answer of kind 6."""

    op: str
    attrs: bytes
    inputs: list[bytes]
    outputs: list[bytes]
    proof: list[bytes]

    def digest(self, program: bytes, step: int, node: int) -> bytes:
        """COMMITMENTS 4.1."""
        inputs = u64(len(self.inputs)) + b"".join(self.inputs)
        outputs = u64(len(self.outputs)) + b"".join(self.outputs)
        head = tag("node/1") + program + u64(step) + u64(node) + text(self.op) + blob(self.attrs)
        return sha(head + inputs + outputs)


def _list(numbers: Sequence[int]) -> bytes:
    return u64(len(numbers)) + b"".join(u64(n) for n in numbers)


def _proof(r: Reader) -> list[bytes]:
    """A proof of another length proves nothing: the clause that asks for it convicts."""
    return r.hashes(64)


def _query(kind: int, fields: bytes, read: Callable[[Reader], Any]) -> Query:
    return Query(tag("query/1") + u8(kind) + fields, read)


def checkpoints(indices: Sequence[int], count: int) -> Query:
    def read(r: Reader) -> Any:
        roots = [r.hash() for _ in indices]
        proof = r.hashes(262144)
        # Its length follows from the run commitment: another one gives no root (PROTOCOL 3.3).
        return dict(zip(indices, roots, strict=True)), proof

    return _query(1, _list(indices), read)


def states(steps: Sequence[int]) -> Query:
    return _query(2, _list(steps), lambda r: {s: r.hash() for s in steps})


def loss(step: int) -> Query:
    read = lambda r: (r.hash(), r.u32(), _proof(r))  # noqa: E731
    return _query(3, u64(step), read)


def nodes(step: int) -> Query:
    return _query(4, u64(step), lambda r: (r.u64(), r.hash()))


def node_hashes(step: int, first: int, count: int) -> Query:
    def read(r: Reader) -> Any:
        return [r.hash() for _ in parts(first, count)]

    return _query(5, u64(step) + u64(first) + u64(count), _listed(read, first, count))


def _listed(
    read: Callable[[Reader], Any], first: int, count: int
) -> Callable[[Reader], list[bytes]]:
    def counted(r: Reader) -> list[bytes]:
        start = r.at
        n = len(parts(first, count))
        if len(r.data) - start == 32 * n + 8:
            found = r.hashes(n)
            if len(found) != n:
                raise MalformedError("another number of hashes")
            return found
        return list(read(r))

    return counted


def node(step: int, index: int) -> Query:
    def read(r: Reader) -> Record:
        op, attrs = r.text(), r.blob(1048576)
        inputs, outputs = r.hashes(1048592), r.hashes(1048592)
        return Record(op, attrs, inputs, outputs, _proof(r))

    return _query(6, u64(step) + u64(index), read)


def slot(step: int, name: str) -> Query:
    read = lambda r: (r.hash(), _proof(r))  # noqa: E731
    return _query(7, u64(step) + text(name), read)


@dataclass(frozen=True)
class Place:
    """An operand or output of a node of a step."""

    step: int
    node: int
    side: int
    operand: int

    def data(self) -> bytes:
        return u64(self.step) + u64(self.node) + u8(self.side) + u64(self.operand)


def tensor_hashes(place: Place, first: int, count: int) -> Query:
    def read(r: Reader) -> Any:
        return [r.hash() for _ in parts(first, count)]

    return _query(8, place.data() + u64(first) + u64(count), _listed(read, first, count))


def leaf(place: Place, index: int, kind: Type) -> Query:
    def read(r: Reader) -> bytes:
        data = r.blob(2048)
        if len(data) != leaf_size(kind, index):
            raise MalformedError("another number of bytes")
        return data

    return _query(9, place.data() + u64(index), read)


def values(
    place: Place,
    element: int,
    path: Sequence[int],
    view: int,
    numbers: tuple[int, int, int],
    widths: Sequence[int],
) -> Query:
    fields = u64(place.step) + u64(place.node) + u64(place.operand) + u64(element)
    fields += _list(path) + u8(view) + b"".join(u64(n) for n in numbers)
    return _query(10, fields, lambda r: [r.take(w) for w in widths])


def opening(place: Place, kind: Type, leaves: Sequence[int]) -> Query:
    fields = u64(place.step) + u64(place.node) + u64(place.operand) + _list(leaves)
    return _query(11, fields, lambda r: read_opening(r.blob(16777216), kind, leaves))


def record(index: int, length: int) -> Query:
    def read(r: Reader) -> Any:
        data = r.blob(1048576)
        if len(data) != length:
            raise MalformedError("another number of bytes")
        return data, _proof(r)

    return _query(12, u64(index), read)


def part(data: int, index: int, number: int, length: int) -> Query:
    def read(r: Reader) -> Any:
        found = r.blob(1048576)
        if len(found) != length:
            raise MalformedError("another number of bytes")
        return found, _proof(r), _proof(r)

    return _query(16, u64(data) + u64(index) + u64(number), read)


def log(step: int) -> Query:
    def read(r: Reader) -> Any:
        before, first = r.hash(), _proof(r)
        digests = r.hashes(131072)
        return before, first, digests, _proof(r)

    return _query(13, u64(step), read)


def log_hashes(step: int, section: int, first: int, count: int) -> Query:
    def read(r: Reader) -> Any:
        blocks = r.u64()
        hashed = [r.hash() for _ in parts(first, count)]
        return blocks, hashed

    return _query(14, u64(step) + u64(section) + u64(first) + u64(count), read)


def log_block(step: int, section: int, block: int) -> Query:
    read = lambda r: (r.blob(8192), _proof(r))  # noqa: E731
    return _query(15, u64(step) + u64(section) + u64(block), read)


def all_leaves(kind: Type) -> list[int]:
    return list(range(leaves_of(kind)))
