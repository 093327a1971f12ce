"""Entries of a referee's log: layouts, digests, signatures, their outcomes in words, and the errors
of entries that do not follow (PROTOCOL 12.1, 12.2, 12.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from tallystick.commit.encoding import HASH_BYTES, Reader, Writer, sha256, tag
from tallystick.commit.signed import open_compact, sign_compact, split_compact
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.rules import LATEST, Rules, read_rules
from tallystick.delegation.seals import read_key
from tallystick.errors import CorruptFileError, CounterpartyError
from tallystick.limits import LIMITS

ENTRY_TAG = tag("log-entry/1")
ENTRY_TYPE = "application/vnd.tallystick.log-entry.v1"
FIRST = bytes(HASH_BYTES)  # `previous` of entry 0
_WHAT = "log entry"

# Outcomes of a verdict (kind 11) and of a result (kind 12).
CONVICTED, UNDECIDED, NO_VERDICT = 0, 1, 2
NONE_ACCEPTED, CONTESTED, UNCONTESTED, ALONE, NO_RESULT = 0, 1, 2, 3, 4

_B = TypeVar("_B", bound="_Bare")
_G = TypeVar("_G", bound="_OfGame")


class _Bare:
    """An event whose kind says all: it has no fields."""

    def write(self, out: Writer) -> None:
        pass

    @classmethod
    def read(cls: type[_B], source: Reader) -> _B:
        return cls()


@dataclass(frozen=True)
class SessionBegun:
    """Kind 1: the session begins."""

    KIND: ClassVar[int] = 1
    rules: Rules

    def write(self, out: Writer) -> None:
        self.rules.write(out)

    @staticmethod
    def read(source: Reader) -> SessionBegun:
        return SessionBegun(read_rules(source))


@dataclass(frozen=True)
class Sealed:
    """Kind 2: a provider's signed seal."""

    KIND: ClassVar[int] = 2
    message: bytes

    def write(self, out: Writer) -> None:
        out.blob(self.message)

    @staticmethod
    def read(source: Reader) -> Sealed:
        return Sealed(source.blob(LIMITS.seal_bytes))


@dataclass(frozen=True)
class SealingClosed(_Bare):
    """Kind 3: no seal counts any more."""

    KIND: ClassVar[int] = 3


@dataclass(frozen=True)
class SealOpened:
    """Kind 4: a provider's signed opening."""

    KIND: ClassVar[int] = 4
    message: bytes

    def write(self, out: Writer) -> None:
        out.blob(self.message)

    @staticmethod
    def read(source: Reader) -> SealOpened:
        return SealOpened(source.blob(LIMITS.sealed_bytes))


@dataclass(frozen=True)
class OpeningClosed(_Bare):
    """Kind 5: no opening counts any more."""

    KIND: ClassVar[int] = 5


@dataclass(frozen=True)
class _OfGame:
    """Kinds 6 to 8: a game's number, a party's (0 or 1), and at most LIMIT bytes."""

    LIMIT: ClassVar[int]
    game: int
    party: int
    message: bytes

    def write(self, out: Writer) -> None:
        out.u64(self.game).u8(self.party).blob(self.message)

    @classmethod
    def read(cls: type[_G], source: Reader) -> _G:
        game, party = source.u64(), source.u8()
        if party not in (0, 1):
            source.fail(f"there is no party {party}")
        return cls(game, party, source.blob(cls.LIMIT))


@dataclass(frozen=True)
class Asked(_OfGame):
    """Kind 6: the query that a party of a game gets."""

    KIND: ClassVar[int] = 6
    LIMIT: ClassVar[int] = LIMITS.query_bytes


@dataclass(frozen=True)
class Answered(_OfGame):
    """Kind 7: a party's signed answer."""

    KIND: ClassVar[int] = 7
    LIMIT: ClassVar[int] = LIMITS.answer_bytes


@dataclass(frozen=True)
class Forfeited(_OfGame):
    """Kind 8: the referee's signed forfeit, an envelope."""

    KIND: ClassVar[int] = 8
    LIMIT: ClassVar[int] = LIMITS.forfeit_bytes


@dataclass(frozen=True)
class Resumed(_Bare):
    """Kind 9: the referee is back (11.5.2)."""

    KIND: ClassVar[int] = 9


@dataclass(frozen=True)
class GameBegun:
    """Kind 10: a game between the parties of two keys."""

    KIND: ClassVar[int] = 10
    game: int
    keys: tuple[PublicKey, PublicKey]

    def write(self, out: Writer) -> None:
        out.u64(self.game).raw(self.keys[0].raw).raw(self.keys[1].raw)

    @staticmethod
    def read(source: Reader) -> GameBegun:
        return GameBegun(source.u64(), (read_key(source), read_key(source)))


@dataclass(frozen=True)
class GameEnded:
    """Kind 11: CONVICTED with the convicted parties' bits, UNDECIDED or NO_VERDICT."""

    KIND: ClassVar[int] = 11
    game: int
    outcome: int
    convicted: int = 0

    def write(self, out: Writer) -> None:
        out.u64(self.game).u8(self.outcome).u8(self.convicted)

    @staticmethod
    def read(source: Reader) -> GameEnded:
        return GameEnded(source.u64(), source.u8(), source.u8())


@dataclass(frozen=True)
class Result:
    """Kind 12: an outcome, and H of the accepted commitment's envelope or 32 zero bytes."""

    KIND: ClassVar[int] = 12
    outcome: int
    accepted: bytes = bytes(HASH_BYTES)

    def write(self, out: Writer) -> None:
        out.u8(self.outcome).hash(self.accepted)

    @staticmethod
    def read(source: Reader) -> Result:
        return Result(source.u8(), source.hash())


Event = (
    SessionBegun | Sealed | SealingClosed | SealOpened | OpeningClosed | Asked | Answered
    | Forfeited | Resumed | GameBegun | GameEnded | Result
)  # fmt: skip

_READERS: dict[int, Callable[[Reader], Event]] = {
    kind.KIND: kind.read
    for kind in (
        SessionBegun, Sealed, SealingClosed, SealOpened, OpeningClosed, Asked, Answered,
        Forfeited, Resumed, GameBegun, GameEnded, Result,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """Entry `index` of a log, after the one of digest `previous`, at `time` milliseconds (11.1)."""

    index: int
    previous: bytes
    time: int
    event: Event

    def to_bytes(self) -> bytes:
        """The layout of PROTOCOL 12.1."""
        out = Writer(ENTRY_TAG).u64(self.index).hash(self.previous).u64(self.time)
        self.event.write(out.u8(self.event.KIND))
        return out.finish()

    def digest(self) -> bytes:
        """The digest of the entry; of entry 0 it names the session (10.1.1)."""
        return sha256(self.to_bytes())


def sign_entry(key: PrivateKey, entry: Entry) -> bytes:
    """The signed entry."""
    return sign_compact(key, ENTRY_TYPE, entry.to_bytes())


def read_entry(message: bytes) -> Entry:
    """The entry in untrusted bytes. Its signature is not checked. Raises CorruptFileError."""
    source = Reader(split_compact(message, LIMITS.entry_bytes, _WHAT).data, _WHAT)
    source.expect(ENTRY_TAG)
    index, previous, time, kind = source.u64(), source.hash(), source.u64(), source.u8()
    if kind not in _READERS or time > LATEST:
        source.fail("its kind is unknown, or its time is out of range")
    event = _READERS[kind](source)
    source.end()
    return Entry(index, previous, time, event)


def open_entry(message: bytes, referee: PublicKey | None = None) -> Entry:
    """The entry in untrusted bytes, signed by `referee`.

    Without `referee` it must be entry 0, signed by the key that its rules name; the caller decides
    whether it believes that key. Raises CorruptFileError.
    """
    entry = read_entry(message)
    if referee is None:
        if not isinstance(entry.event, SessionBegun):
            raise CorruptFileError(
                f"The {_WHAT} is malformed: it does not begin a session.",
                "Ask its sender for an intact copy.",
            )
        referee = entry.event.rules.referee
    open_compact(message, ENTRY_TYPE, referee, LIMITS.entry_bytes, _WHAT)
    return entry


VERDICTS = {CONVICTED: "convicted", UNDECIDED: "undecided", NO_VERDICT: "no verdict"}


@dataclass(frozen=True)
class Words:
    """A result: its `name` in JSON (docs/INTERFACE.md), and a `sentence` for a person.

    `accepts` says whether a person reads of an accepted claim: of one that was compared (10.6.1).
    """

    name: str
    sentence: str
    accepts: bool = False


RESULTS = {
    NONE_ACCEPTED: Words("none accepted", "No claim is accepted: every party was removed."),
    CONTESTED: Words(
        "accepted", "One claim is accepted; every party that signed another one was removed.", True
    ),
    UNCONTESTED: Words(
        "uncontested", "All parties have signed the same claim; it is accepted.", True
    ),
    ALONE: Words(
        "one party alone",
        "One party alone has opened; its claim was compared with nothing, and none is accepted.",
    ),
    NO_RESULT: Words("no result", "The session has no result: a game could not be decided."),
}


class DeviationError(CounterpartyError):
    """An entry that its referee has signed, and that no referee of these rules writes.

    `index` is the entry's, `clause` the one of spec/PROTOCOL.md that it breaks.
    """

    exit_code = 1

    def __init__(self, index: int, clause: str, why: str) -> None:
        super().__init__(
            f"Entry {index} of the referee's log convicts the referee (PROTOCOL {clause}): {why}.",
            "Do not rely on this session. The log is the evidence.",
        )
        self.index, self.clause, self.why = index, clause, why


class NoEffectError(CounterpartyError):
    """A party's message that has no effect in the session: late, repeated, or of another session.

    The referee does not log it, and it convicts no party.
    """
