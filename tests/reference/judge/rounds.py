"""What every phase of a game does: asking, convicting, descending (PROTOCOL 2, 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference.judge import messages as ask
from reference.judge.encoding import MalformedError, Reader
from reference.judge.merkle import (
    Type,
    canonical,
    digest_of_bytes,
    elements,
    join,
    leaf_hash,
    leaves_of,
    parts,
    tensor_digest,
    width,
)

Play = Generator[dict[int, bytes], dict[int, tuple[int, bytes]], Any]
CHAIN: Type = ("u8", (32,))
BOTH = (0, 1)


class VerdictError(Exception):
    """The game ends with these convictions (1.4); with none, in agreement."""

    def __init__(self, convicted: list[tuple[int, str]]) -> None:
        super().__init__(str(convicted))
        self.convicted = convicted


class UndecidedError(Exception):
    """1.5.1."""


@dataclass
class Party:
    """A run commitment, and what the party has proved and stated so far."""

    run_root: bytes
    final_root: bytes
    final: int
    checkpoints: int
    signer: bytes
    proved: dict[int, bytes] = field(default_factory=dict)
    stated: dict[int, bytes] = field(default_factory=dict)


def convict(bad: Sequence[tuple[int, bool]], clause: str) -> None:
    """Convicts each party whose statement was bad."""
    found = [(p, clause) for p, wrong in bad if wrong]
    if found:
        raise VerdictError(found)


def asked(queries: dict[int, ask.Query]) -> Play:
    """What the bodies say, by party; a body that does not follow 2.1 convicts (2.7, 2.8)."""
    got = yield {p: q.data for p, q in queries.items()}
    bad: list[tuple[int, str]] = []
    out = {}
    for p in sorted(queries):
        status, body = got[p]
        if status == 1 and not body:
            bad.append((p, "2.8"))
            continue
        try:
            if status != 0:
                raise MalformedError("another status")
            r = Reader(body)
            out[p] = queries[p].read(r)
            r.end()
        except MalformedError:
            bad.append((p, "2.7"))
    if bad:
        raise VerdictError(bad)
    return out


def both(query: ask.Query) -> Play:
    return (yield from asked({0: query, 1: query}))


def descend(
    query: Callable[[int, int], ask.Query],
    count: int,
    fits: Callable[[int, bytes], bool],
    clause: str,
) -> Play:
    """(first differing leaf, its hash by party; {} where there is one leaf only) (2.4)."""
    first, known = 0, {}
    while count > 1:
        found = yield from both(query(first, count))
        whole = {p: join(list(found[p]), count) for p in BOTH}
        wrong = [(p, known[p] != whole[p] if known else not fits(p, whole[p])) for p in BOTH]
        convict(wrong, clause)
        at = next(i for i in range(len(found[0])) if found[0][i] != found[1][i])
        known = {p: found[p][at] for p in BOTH}
        first, count = parts(first, count)[at]
    return first, known


def first_element(place: ask.Place, kind: Type, digests: Sequence[bytes]) -> Play:
    """(the first differing element, its bytes by party) of two tensors (6.1)."""
    if elements(kind) == 0:
        convict([(p, digests[p] != digest_of_bytes(kind, b"")) for p in BOTH], "6.1")
    leaf, known = yield from descend(
        lambda first, count: ask.tensor_hashes(place, first, count),
        leaves_of(kind),
        lambda p, whole: tensor_digest(kind, whole) == digests[p],
        "6.1",
    )
    data = yield from both(ask.leaf(place, leaf, kind))
    wrong = []
    for p in BOTH:
        hashed = leaf_hash(data[p])
        fits = hashed == known[p] if known else tensor_digest(kind, hashed) == digests[p]
        wrong.append((p, not fits or not canonical(kind[0], data[p])))
    convict(wrong, "6.1")
    w = width(kind[0])
    cut = [[data[p][i : i + w] for i in range(0, len(data[p]), w)] for p in BOTH]
    at = next(i for i in range(len(cut[0])) if cut[0][i] != cut[1][i])
    return leaf * 2048 // w + at, [cut[p][at] for p in BOTH]
