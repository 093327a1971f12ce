"""The settlement as a signed in-toto Statement that anyone computes again (PROTOCOL 14.9).

An outcome also has this JSON on its own: the file that `tallystick settle` reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from tallystick.commit.encoding import JsonValue, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.signed import (
    DOCUMENT,
    ENTRY,
    FILE,
    PAYLOAD_TYPE,
    STATEMENT_TYPE,
    Subject,
    claim_type,
    statement_payload,
)
from tallystick.commit.signing import (
    Envelope,
    PrivateKey,
    PublicKey,
    sign_envelope,
    verify_envelope,
)
from tallystick.delegation.book import Book, alarms_until
from tallystick.delegation.offer import LATEST, key_of, within
from tallystick.delegation.outcome import Fate, Outcome, PlayedGame, SealedMember
from tallystick.delegation.settlement import Settlement, settle
from tallystick.errors import (
    CorruptFileError,
    MismatchError,
    SignatureInvalidError,
    UsageError,
)
from tallystick.limits import LIMITS

PREDICATE_TYPE = claim_type("settlement")
# Read, and no longer written (14.9.3): its digests, which are of no file, stood as `sha256`.
OLD_TYPE = "urn:tallystick:settlement:v1"


# ---- outcomes (14.6) ----------------------------------------------------------------------------


def outcome_json(outcome: Outcome) -> dict[str, JsonValue]:
    """The outcome's object in a statement."""
    return {
        "accepted": _hex(outcome.accepted),
        "ended": outcome.ended,
        "games": [
            {
                "executed": list(game.executed),
                "keys": [key.raw.hex() for key in game.keys],
                "number": game.number,
                "removed": list(game.removed),
            }
            for game in outcome.games
        ],
        "head": outcome.head.hex(),
        "members": [
            {"claim": _hex(m.claim), "fate": m.fate.value, "key": m.key.raw.hex()}
            for m in outcome.members
        ],
        "offer": outcome.offer.hex(),
        "result": outcome.result,
        "session": outcome.session.hex(),
    }


def read_outcome(data: bytes) -> Outcome:
    """The outcome in untrusted canonical JSON. Raises CorruptFileError."""
    limit = LIMITS.envelope_bytes
    return _outcome(Members(parse_canonical_json(data, "outcome", limit), _malformed))


def _outcome(whole: Members) -> Outcome:
    whole.only("accepted", "ended", "games", "head", "members", "offer", "result", "session")
    members, games = whole.of("members", list), whole.of("games", list)
    if max(len(members), len(games)) > LIMITS.parties:
        _malformed("it has too many members or games")
    try:
        return Outcome(
            offer=whole.hex("offer"),
            session=whole.hex("session"),
            head=whole.hex("head"),
            ended=whole.of("ended", int),
            result=whole.of("result", int),
            accepted=_hash_or_none(whole, "accepted"),
            members=tuple(_member(Members(item, _malformed)) for item in members),
            games=tuple(_game(Members(item, _malformed)) for item in games),
        )
    except UsageError as error:
        _malformed(error.message)


def _member(one: Members) -> SealedMember:
    one.only("claim", "fate", "key")
    fate = one.of("fate", str)
    if fate not in {f.value for f in Fate}:
        _malformed(f"a key has an unknown fate: {fate[:80]!r}")
    return SealedMember(key_of(one, "key"), Fate(fate), _hash_or_none(one, "claim"))


def _game(one: Members) -> PlayedGame:
    one.only("executed", "keys", "number", "removed")
    pairs = [one.of(name, list) for name in ("keys", "removed", "executed")]
    keys, removed, executed = pairs
    if any(len(pair) != 2 for pair in pairs) or any(type(r) is not bool for r in removed):
        _malformed("a game is not between two parties")
    if any(type(n) is not int for n in executed):
        _malformed("a game's steps are no numbers")
    first, second = (PublicKey(one.hex_of(key, "keys")) for key in keys)  # _outcome converts
    return PlayedGame(
        one.of("number", int),
        (first, second),
        (bool(removed[0]), bool(removed[1])),
        (_int(executed[0]), _int(executed[1])),
    )


def _int(value: JsonValue) -> int:
    assert isinstance(value, int)
    return value


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _hash_or_none(one: Members, name: str) -> bytes | None:
    return None if one.value.get(name) is None else one.hex(name)


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The outcome or settlement is malformed: {why}.", "Ask its sender for an intact copy."
    )


# ---- the statement (14.9) -----------------------------------------------------------------------


def settled_from(book: Book, session: Outcome | None) -> int:
    """The first time, in milliseconds, at which no document can change the settlement any more.

    `session` is the outcome of the offer's session, None where there was none (14.9.1).
    """
    last = book.offer.deadlines.withdraw
    if session is not None and session.accepted is not None:
        last = max(last, alarms_until(book.offer, session))
    return last + 1


@dataclass(frozen=True)
class Settled:
    """A settlement with all that it was computed from; `time` in milliseconds (11.1).

    Raises UsageError where the time is not after the deadlines of 14.9.1, the referee is none of
    the offer's, or the outcomes do not fit the book.
    """

    book: Book
    referee: PublicKey
    time: int
    session: Outcome | None = None
    challenge: Outcome | None = None

    def __post_init__(self) -> None:
        offer = self.book.offer
        if self.referee not in offer.referees:
            raise UsageError("The offer does not name this referee.", "Sign with a key it names.")
        first = settled_from(self.book, self.session)
        within("the settlement's time", self.time, first, 2 * LATEST - 1)

    @property
    def settlement(self) -> Settlement:
        """The transfers (14.8)."""
        return settle(self.book, self.session, self.challenge)

    def payload(self, kind: str = PREDICATE_TYPE) -> bytes:
        """The Statement, canonical JSON, in the form of the type `kind`."""
        settlement = self.settlement
        document, entry = (FILE, FILE) if kind == OLD_TYPE else (DOCUMENT, ENTRY)
        subjects = [Subject("offer", {document: self.book.offer.digest})]
        for name, outcome in (("session", self.session), ("challenge", self.challenge)):
            if outcome is not None:
                subjects.append(Subject(name, {entry: outcome.head}))
        predicate: dict[str, JsonValue] = {
            "accepted": _hex(settlement.accepted),
            "challenge": None if self.challenge is None else outcome_json(self.challenge),
            "documents": [
                {"digest": digest.hex(), "time": time}
                for digest, time in sorted((d.digest, time) for time, d in self.book.received)
            ],
            "offer": self.book.offer.digest.hex(),
            "referee": self.referee.raw.hex(),
            "session": None if self.session is None else outcome_json(self.session),
            "time": self.time,
            "transfers": [
                {
                    "amount": t.amount,
                    "from": t.payer.raw.hex(),
                    "reason": t.reason,
                    "to": t.payee.raw.hex(),
                }
                for t in settlement.transfers
            ],
            "unit": self.book.offer.unit,
        }
        return statement_payload(kind, subjects, predicate)


def sign_settlement(key: PrivateKey, settled: Settled) -> bytes:
    """The signed statement, an envelope's bytes. Raises UsageError for another key."""
    if key.public != settled.referee:
        raise UsageError("The settlement names another referee.", "Build it with this key.")
    return sign_envelope(key, PAYLOAD_TYPE, settled.payload()).to_bytes()


def check_settlement(
    data: bytes,
    book: Book,
    session: Outcome | None = None,
    challenge: Outcome | None = None,
    *,
    stated: bool = False,
) -> Settled:
    """The settlement in an untrusted envelope, computed again from `book` and the outcomes.

    The caller takes the outcomes from the logs. With `stated`, those in the statement are used:
    then the check covers the computation, and not what happened in the sessions. Raises
    SignatureInvalidError for another signer than a referee of the offer, MismatchError where the
    statement is not the one that follows, and CorruptFileError where it is none.
    """
    envelope = Envelope.from_bytes(data)
    limit = LIMITS.envelope_bytes
    whole = Members(parse_canonical_json(envelope.payload, "settlement", limit), _malformed)
    whole.only("_type", "predicate", "predicateType", "subject")
    kind = whole.of("predicateType", str)
    if whole.value["_type"] != STATEMENT_TYPE or kind not in (PREDICATE_TYPE, OLD_TYPE):
        _malformed("it is no settlement")
    predicate = whole.child("predicate")
    referee, time = key_of(predicate, "referee"), predicate.of("time", int)
    _signed(envelope, referee)
    if stated:
        session, challenge = (
            None if predicate.value.get(name) is None else _outcome(predicate.child(name))
            for name in ("session", "challenge")
        )
    try:
        settled = Settled(book, referee, time, session, challenge)
        payload = settled.payload(kind)
    except UsageError as error:
        raise MismatchError(
            f"The settlement does not follow from these documents: {error.message}", "Refuse it."
        ) from error
    if payload != envelope.payload:
        raise MismatchError(
            "The settlement is not the one that follows from these documents and outcomes.",
            "Refuse it, and keep it with the documents: its signer has stated it (14.9.2).",
        )
    return settled


def _signed(envelope: Envelope, referee: PublicKey) -> None:
    if [s.key_id for s in envelope.signatures] != [referee.key_id]:
        raise SignatureInvalidError(
            "The settlement is not signed by exactly the referee that it names.", "Refuse it."
        )
    verify_envelope(envelope, PAYLOAD_TYPE, [referee])
