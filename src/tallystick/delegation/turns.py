"""Turns and replies: what the referee sends to a party, what comes back, and how a service that
serves parties spells both (PROTOCOL 13.2, 13.4; docs/adr/0013-http.md).

| reply | status | body |
|---|---|---|
| Message | 200 | the signed message, `application/octet-stream` |
| Working | 202 | `{"working": text}` |
| Needs | 409 | `{"needs": number}` |
| Refusal | 400, 401, 403 or 409 | `{"refused": sentence, "kind": name}` |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tallystick.commit.encoding import U64_MAX, Reader, Writer, tag
from tallystick.commit.signed import open_compact, sign_compact, split_compact
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS

# -- turns -----------------------------------------------------------------------------------------
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


def own_request(message: bytes) -> Request:
    """The request in a turn that this process has signed itself."""
    return turn_of(split_compact(message, LIMITS.turn_bytes, "turn").data).request


# -- replies ---------------------------------------------------------------------------------------
MALFORMED, UNBELIEVED, NOT_REGISTERED, IN_CONFLICT = (
    "malformed", "unbelieved", "not registered", "in conflict",
)  # fmt: skip


@dataclass(frozen=True)
class Message:
    """The party's signed message: a seal, an opening or an answer. No bytes: nothing is left to
    say, as after the end of a session."""

    data: bytes


@dataclass(frozen=True)
class Working:
    """The party is making the answer. `done` says how far it is."""

    done: str = ""


@dataclass(frozen=True)
class Needs:
    """The party needs the game's messages from number `first` on."""

    first: int


@dataclass(frozen=True)
class Refusal:
    """The party refuses the turn. `kind` is one of the names above, `why` a sentence."""

    kind: str
    why: str


Reply = Message | Working | Needs | Refusal


# -- replies as responses --------------------------------------------------------------------------
TURN, PARTY, COMMITMENT, LOGS, LOG = (
    "/v1/turn", "/v1/party", "/v1/commitment", "/v1/logs/", "/v1/log/",
)  # fmt: skip
OCTETS, JSON = "application/octet-stream", "application/json"
CARD_FORMAT = "tallystick/party/1"
# A response is no longer than the longest signed message, and one in JSON far shorter.
MESSAGE_BYTES = LIMITS.entry_bytes
JSON_BYTES = 4096
_TEXT = 500  # characters of another party's sentence

_STATUS = {MALFORMED: 400, UNBELIEVED: 401, NOT_REGISTERED: 403, IN_CONFLICT: 409}


def encode_reply(reply: Reply) -> tuple[int, str, bytes]:
    """Status, content type and body."""
    if isinstance(reply, Message):
        return 200, OCTETS, reply.data
    if isinstance(reply, Working):
        return 202, JSON, _json({"working": reply.done})
    if isinstance(reply, Needs):
        return 409, JSON, _json({"needs": reply.first})
    return _STATUS[reply.kind], JSON, _json({"refused": reply.why, "kind": reply.kind})


def decode_reply(status: int, body: bytes) -> Reply:
    """The reply in an untrusted response. Raises CorruptFileError where it is none."""
    if status == 200:
        return Message(body)
    found = _read_json(body)
    if status == 202:
        return Working(_text(found.get("working")))
    if status == 409 and "needs" in found:
        first = found["needs"]
        if isinstance(first, bool) or not isinstance(first, int) or not 0 <= first <= U64_MAX:
            raise CorruptFileError(
                "A party asks for a message without a valid number.", "Refuse it."
            )
        return Needs(first)
    kind = next((kind for kind, number in _STATUS.items() if number == status), None)
    if kind is None:
        raise CorruptFileError(f"A party responds with status {status}.", "Ask again later.")
    return Refusal(kind, _text(found.get("refused")))


@dataclass(frozen=True)
class Card:
    """What a party says about itself before any session. No signature covers it."""

    key: PublicKey
    job_digest: bytes
    hands_over_logs: bool

    def members(self) -> dict[str, object]:
        """The members of its JSON object."""
        return {
            "format": CARD_FORMAT,
            "protocol": 1,
            "key": self.key.raw.hex(),
            "job_digest": self.job_digest.hex(),
            "hands_over_logs": self.hands_over_logs,
        }


def decode_card(status: int, body: bytes) -> Card:
    """The card in an untrusted response. Raises CorruptFileError where it is none."""
    if status != 200:
        raise CorruptFileError(f"A party's card comes with status {status}.", "Check its address.")
    found = _read_json(body)
    if found.get("format") != CARD_FORMAT or found.get("protocol") != 1:
        raise CorruptFileError(
            "The server at this address is not a party of this protocol.", "Check its address."
        )
    try:
        key = PublicKey(bytes.fromhex(str(found.get("key"))))
        digest = bytes.fromhex(str(found.get("job_digest")))
    except (UsageError, ValueError):
        raise CorruptFileError(
            "A party's card names no valid key or job.", "Check its address."
        ) from None
    return Card(key, digest, found.get("hands_over_logs") is True)


def _read_json(body: bytes) -> dict[str, Any]:
    """The members of a small untrusted JSON object. Raises CorruptFileError."""
    if len(body) > JSON_BYTES:
        raise CorruptFileError("A response in JSON is too long.", "Refuse it.")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CorruptFileError("A response is no JSON object.", "Check the address.")
    return found


def _text(value: object) -> str:
    return value[:_TEXT] if isinstance(value, str) else ""


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode("ascii")
