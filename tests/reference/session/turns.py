"""Turns of a referee (PROTOCOL 13.2)."""

from __future__ import annotations

from dataclasses import dataclass

from reference.judge.encoding import MalformedError, Reader, blob, signed, tag, u8, u64
from reference.session.layout import (
    ANSWER_BYTES,
    COMMITMENT_BYTES,
    ENTRY_BYTES,
    QUERY_BYTES,
    TURN,
    cut,
)

TURN_BYTES, TURN_ENTRIES, TURN_MESSAGES = 9437184, 1024, 64


@dataclass(frozen=True)
class Turn:
    """`entries` of kinds 1, 2 and 4; the other members are those of kind 3."""

    session: bytes
    kind: int
    entries: tuple[bytes, ...] = ()
    game: int = 0
    party: int = 0
    commitments: tuple[bytes, ...] = ()
    first: int = 0
    messages: tuple[tuple[int, bytes], ...] = ()
    query: bytes = b""


def _party(r: Reader) -> int:
    party = r.u8()
    if party > 1:
        raise MalformedError("no such party")
    return party


def _count(r: Reader, limit: int) -> int:
    count = r.u64()
    if count > limit:
        raise MalformedError("a list too long")
    return count


def _play(session: bytes, r: Reader) -> Turn:
    game, party = r.u64(), _party(r)
    commitments = r.blob(COMMITMENT_BYTES), r.blob(COMMITMENT_BYTES)
    first, count = r.u64(), _count(r, TURN_MESSAGES)
    messages = tuple((_party(r), r.blob(ANSWER_BYTES)) for _ in range(count))
    query = r.blob(QUERY_BYTES)
    return Turn(session, 3, (), game, party, commitments, first, messages, query)


def read_turn(message: bytes, referee: bytes) -> Turn:
    """A signed turn of the referee's; MalformedError otherwise."""
    data, signature = cut(message, TURN_BYTES)
    if not signed(referee, signature, TURN, data):
        raise MalformedError("a signature that does not verify")
    r = Reader(data)
    r.tag("turn/1")
    session, kind = r.hash(), r.u8()
    if kind in (1, 4):
        turn = Turn(session, kind, (r.blob(ENTRY_BYTES),))
    elif kind == 2:
        count = _count(r, TURN_ENTRIES)
        turn = Turn(session, kind, tuple(r.blob(ENTRY_BYTES) for _ in range(count)))
    elif kind == 3:
        turn = _play(session, r)
    else:
        raise MalformedError("no such kind")
    r.end()
    return turn


def write_turn(turn: Turn) -> bytes:
    """The turn without its signature."""
    out = tag("turn/1") + turn.session + u8(turn.kind)
    if turn.kind == 2:
        out += u64(len(turn.entries))
    out += b"".join(map(blob, turn.entries))
    if turn.kind == 3:
        out += u64(turn.game) + u8(turn.party) + b"".join(map(blob, turn.commitments))
        out += u64(turn.first) + u64(len(turn.messages))
        out += b"".join(u8(p) + blob(m) for p, m in turn.messages) + blob(turn.query)
    return out
