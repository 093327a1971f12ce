"""Turns: what the referee sends to a party (PROTOCOL 13.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tallystick.commit.compact import open_compact, sign_compact, split_compact
from tallystick.commit.encoding import Reader, Writer, tag
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.limits import LIMITS

TURN_TAG = tag("turn/1")
TURN_TYPE = "application/vnd.tallystick.turn.v1"


@dataclass(frozen=True)
class AskSeal:
    """Kind 1: seal your commitment. `entry` is the signed entry 0 of the log."""

    KIND: ClassVar[int] = 1
    entry: bytes

    def write(self, out: Writer) -> None:
        out.blob(self.entry)

    @staticmethod
    def read(source: Reader) -> AskSeal:
        return AskSeal(source.blob(LIMITS.entry_bytes))


@dataclass(frozen=True)
class AskOpening:
    """Kind 2: open your seal. `entries` are the signed entries 0 to the closing of the sealing."""

    KIND: ClassVar[int] = 2
    entries: tuple[bytes, ...]

    def write(self, out: Writer) -> None:
        out.u64(len(self.entries))
        for entry in self.entries:
            out.blob(entry)

    @staticmethod
    def read(source: Reader) -> AskOpening:
        count = source.count(LIMITS.turn_entries, "entries")
        return AskOpening(tuple(source.blob(LIMITS.entry_bytes) for _ in range(count)))


@dataclass(frozen=True)
class Play:
    """Kind 3: answer `query` in a game, as its party `party`.

    `messages` are the game's messages from number `first` on: (party, signed answer). A query of no
    bytes asks nothing.
    """

    KIND: ClassVar[int] = 3
    game: int
    party: int
    commitments: tuple[bytes, bytes]
    first: int
    messages: tuple[tuple[int, bytes], ...]
    query: bytes

    def write(self, out: Writer) -> None:
        out.u64(self.game).u8(self.party).blob(self.commitments[0]).blob(self.commitments[1])
        out.u64(self.first).u64(len(self.messages))
        for party, message in self.messages:
            out.u8(party).blob(message)
        out.blob(self.query)

    @staticmethod
    def read(source: Reader) -> Play:
        def seat() -> int:
            party = source.u8()
            if party not in (0, 1):
                source.fail(f"there is no party {party}")
            return party

        game, party = source.u64(), seat()
        limit = LIMITS.commitment_bytes
        commitments = (source.blob(limit), source.blob(limit))
        first, count = source.u64(), source.count(LIMITS.turn_messages, "messages")
        messages = tuple((seat(), source.blob(LIMITS.answer_bytes)) for _ in range(count))
        return Play(game, party, commitments, first, messages, source.blob(LIMITS.query_bytes))


@dataclass(frozen=True)
class Ended:
    """Kind 4: the session's result. `entry` is the signed entry of kind 12."""

    KIND: ClassVar[int] = 4
    entry: bytes

    def write(self, out: Writer) -> None:
        out.blob(self.entry)

    @staticmethod
    def read(source: Reader) -> Ended:
        return Ended(source.blob(LIMITS.entry_bytes))


Request = AskSeal | AskOpening | Play | Ended

_READERS: dict[int, Callable[[Reader], Request]] = {
    kind.KIND: kind.read for kind in (AskSeal, AskOpening, Play, Ended)
}


@dataclass(frozen=True)
class Turn:
    """A request of the referee in `session` to one party."""

    session: bytes
    request: Request

    def to_bytes(self) -> bytes:
        """The layout of PROTOCOL 13.2."""
        out = Writer(TURN_TAG).hash(self.session).u8(self.request.KIND)
        self.request.write(out)
        return out.finish()


def sign_turn(key: PrivateKey, turn: Turn) -> bytes:
    """The signed turn."""
    return sign_compact(key, TURN_TYPE, turn.to_bytes())


def turn_of(data: bytes) -> Turn:
    """The turn in unsigned untrusted bytes. Raises CorruptFileError."""
    source = Reader(data, "turn")
    source.expect(TURN_TAG)
    session, kind = source.hash(), source.u8()
    if kind not in _READERS:
        source.fail(f"it has no known kind: {kind}")
    request = _READERS[kind](source)
    source.end()
    return Turn(session, request)


def open_turn(message: bytes, believed: tuple[PublicKey, ...]) -> tuple[Turn, PublicKey]:
    """The turn in untrusted bytes, and the believed key that has signed it.

    The signature is checked before the turn is read. Raises CorruptFileError.
    """
    found = split_compact(message, LIMITS.turn_bytes, "signed turn")
    for key in believed[:-1]:
        if found.verified(TURN_TYPE, key):
            return turn_of(found.data), key
    if not believed:
        Reader(b"", "signed turn").fail("no referee's key is believed")
    data = open_compact(message, TURN_TYPE, believed[-1], LIMITS.turn_bytes, "signed turn")
    return turn_of(data), believed[-1]
