"""The bodies of answers: one class per body (PROTOCOL 2.1).

Each class of `queries` names the body of its answer, and that body's layout.
"""

from __future__ import annotations

from dataclasses import dataclass

Hashes = tuple[bytes, ...]


@dataclass(frozen=True)
class Body:
    """A party's decoded answer to a query. PROTOCOL 2.1 numbers the kinds."""


@dataclass(frozen=True)
class RootsBody(Body):
    """State roots, and for checkpoints the multi-proof (kinds 1 and 2; kind 2 has no proof)."""

    roots: Hashes
    proof: Hashes = ()


@dataclass(frozen=True)
class LossBody(Body):
    """Kind 3."""

    chain: bytes
    bits: int
    proof: Hashes


@dataclass(frozen=True)
class NodesBody(Body):
    """Kind 4."""

    count: int
    root: bytes


@dataclass(frozen=True)
class HashesBody(Body):
    """Kinds 5 and 8."""

    hashes: Hashes


@dataclass(frozen=True)
class NodeBody(Body):
    """Kind 6: a node as executed."""

    operator: str
    attributes: bytes
    inputs: Hashes
    outputs: Hashes
    proof: Hashes


@dataclass(frozen=True)
class SlotBody(Body):
    """Kind 7."""

    digest: bytes
    proof: Hashes


@dataclass(frozen=True)
class BytesBody(Body):
    """Kinds 9 (a leaf), 10 (values) and 11 (a tensor opening's layout)."""

    data: bytes


@dataclass(frozen=True)
class RecordBody(Body):
    """Kind 12."""

    record: bytes
    proof: Hashes


@dataclass(frozen=True)
class PartBody(Body):
    """Kind 16."""

    part: bytes
    inner: Hashes
    proof: Hashes


@dataclass(frozen=True)
class LogBody(Body):
    """Kind 13: the log chain before the step, the section digests, and proofs of the chain."""

    chain: bytes
    before: Hashes
    sections: Hashes
    after: Hashes


@dataclass(frozen=True)
class BlocksBody(Body):
    """Kind 14."""

    blocks: int
    hashes: Hashes


@dataclass(frozen=True)
class BlockBody(Body):
    """Kind 15."""

    data: bytes
    proof: Hashes
