"""The signed settlement, computed again from its documents (PROTOCOL 14.9)."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from claim_schemas import fits
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.delegation.offers import (
    AGAIN,
    CLAIM,
    CLIENT,
    ENDED,
    FALSE,
    HEAD_AGAIN,
    OFFER,
    OTHER_REFEREE,
    PARTIES,
    REFEREE,
    P,
    accepted,
    alarm,
    book,
    game,
    outcome,
    received,
)
from unit.delegation.worlds import world

from tallystick.commit.encoding import canonical_json
from tallystick.commit.signed import PAYLOAD_TYPE
from tallystick.commit.signing import Envelope, sign_envelope
from tallystick.delegation.book import challenge_of, open_book
from tallystick.delegation.documents import Acceptance, sign_document
from tallystick.delegation.outcome import Fate, Outcome
from tallystick.delegation.statement import (
    PREDICATE_TYPE,
    Settled,
    check_settlement,
    outcome_json,
    read_outcome,
    sign_settlement,
)
from tallystick.errors import (
    CorruptFileError,
    CounterpartyError,
    MismatchError,
    SignatureInvalidError,
    UsageError,
)

FATES = {P[0]: (Fate.REMAINING, CLAIM), P[1]: (Fate.CONVICTED, FALSE)}
SESSION_OUTCOME = outcome(OFFER.digest, FATES, CLAIM, [game(0, P[:2], 2)])
DOCUMENTS = accepted(OFFER, P[:2])
BOOK = book(OFFER, DOCUMENTS)
AFTER = ENDED + 501
SETTLED = Settled(BOOK, REFEREE.public, AFTER, SESSION_OUTCOME)
SIGNED = sign_settlement(REFEREE, SETTLED)


def challenged() -> tuple[Settled, Outcome]:
    """A settlement after an alarm that was false."""
    one = book(OFFER, DOCUMENTS, alarm(OFFER, P[5]))
    called = challenge_of(one, SESSION_OUTCOME)
    assert called is not None
    fates = {P[0]: (Fate.REMAINING, CLAIM), P[5]: (Fate.CONVICTED, FALSE)}
    second = outcome(called.names, fates, CLAIM, [game(0, (P[0], P[5]), 2)], session=AGAIN,
                     head=HEAD_AGAIN, ended=called.begins + 9)  # fmt: skip
    return Settled(one, REFEREE.public, AFTER, SESSION_OUTCOME, second), second


def test_anyone_computes_it_again() -> None:  # PROTOCOL 14.9.2
    assert check_settlement(SIGNED, BOOK, SESSION_OUTCOME) == SETTLED
    settled, second = challenged()
    signed = sign_settlement(REFEREE, settled)
    assert check_settlement(signed, settled.book, SESSION_OUTCOME, second) == settled
    assert check_settlement(signed, settled.book, stated=True) == settled


def test_it_is_an_in_toto_statement() -> None:  # PROTOCOL 14.9
    value = json.loads(challenged()[0].payload())
    assert value["_type"] == "https://in-toto.io/Statement/v1"
    assert value["predicateType"] == PREDICATE_TYPE
    assert [s["name"] for s in value["subject"]] == ["offer", "session", "challenge"]
    fits(value, "settlement")
    assert value["subject"][0]["digest"] == {"tallystickDocument": OFFER.digest.hex()}
    assert [[*s["digest"]] for s in value["subject"][1:]] == [["tallystickEntry"]] * 2
    assert set(value["predicate"]) == {
        "accepted", "challenge", "documents", "offer", "referee", "session", "time", "transfers",
        "unit",
    }  # fmt: skip
    assert len(value["predicate"]["documents"]) == 3
    assert value["predicate"]["transfers"][0] == {
        "amount": 100, "from": CLIENT.public.raw.hex(), "reason": "price", "to": P[0].raw.hex(),
    }  # fmt: skip


def changed(path: tuple[Any, ...], value: Any) -> bytes:
    """The settlement with another value at a place, signed by the referee all the same."""
    whole = json.loads(Envelope.from_bytes(SIGNED).payload)
    at = whole
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return sign_envelope(REFEREE, PAYLOAD_TYPE, canonical_json(whole)).to_bytes()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("predicate", "transfers", 0, "amount"), 101),
        (("predicate", "transfers"), []),
        (("predicate", "transfers", 0, "to"), P[1].raw.hex()),
        (("predicate", "accepted"), FALSE.hex()),
        (("predicate", "documents"), []),
        (("predicate", "documents", 0, "time"), 499),
        (("predicate", "time"), AFTER - 1),
        (("predicate", "unit"), "gold"),
        (("predicate", "session", "members", 1, "fate"), "silent"),
        (("predicate", "more"), 1),
        (("subject", 0, "digest", "tallystickDocument"), FALSE.hex()),
        (("subject", 0, "digest"), {"sha256": OFFER.digest.hex()}),
        (("predicateType",), "urn:tallystick:settlement:v1"),
        (("subject",), []),
    ],
)
def test_a_wrong_settlement_is_found(path: tuple[Any, ...], value: Any) -> None:  # 14.9.2
    data = changed(path, value)
    with pytest.raises(MismatchError):
        check_settlement(data, BOOK, SESSION_OUTCOME)
    with pytest.raises(CounterpartyError):
        check_settlement(data, BOOK, stated=True)


def test_an_outcome_that_is_not_the_logs_is_found() -> None:  # PROTOCOL 14.9.2
    silent = {**FATES, P[1]: (Fate.SILENT, FALSE)}
    lie = outcome(OFFER.digest, silent, CLAIM, [game(0, P[:2], 2)])
    signed = sign_settlement(REFEREE, Settled(BOOK, REFEREE.public, AFTER, lie))
    with pytest.raises(MismatchError):
        check_settlement(signed, BOOK, SESSION_OUTCOME)


def test_a_document_left_out_is_found() -> None:  # PROTOCOL 14.9.2
    more = open_book([*book_bytes(), *received(Acceptance(OFFER.digest, P[2]), 501)])
    with pytest.raises(MismatchError):
        check_settlement(SIGNED, more, SESSION_OUTCOME)


def book_bytes() -> list[bytes]:
    return [sign_document(CLIENT, OFFER), *DOCUMENTS]


def test_only_a_referee_of_the_offer_signs_it() -> None:  # PROTOCOL 14.9
    payload = Envelope.from_bytes(SIGNED).payload
    stranger = sign_envelope(PARTIES[3], PAYLOAD_TYPE, payload).to_bytes()
    other = sign_envelope(OTHER_REFEREE, PAYLOAD_TYPE, payload).to_bytes()
    for data in (stranger, other):
        with pytest.raises(SignatureInvalidError):
            check_settlement(data, BOOK, SESSION_OUTCOME)
    with pytest.raises(UsageError, match="another referee"):
        sign_settlement(OTHER_REFEREE, SETTLED)
    with pytest.raises(UsageError, match="does not name"):
        replace(SETTLED, referee=PARTIES[3].public)


def test_a_settlement_has_its_time() -> None:  # PROTOCOL 14.9.1
    for early in (0, AFTER - 1):
        with pytest.raises(UsageError, match="time"):
            replace(SETTLED, time=early)
    nothing = book(OFFER)
    with pytest.raises(UsageError, match="time"):
        Settled(nothing, REFEREE.public, 2000)
    assert Settled(nothing, REFEREE.public, 2001).settlement.transfers == ()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, (1 << 64) - 1))
def test_an_outcome_comes_back_from_its_json(seed: int) -> None:  # PROTOCOL 14.6
    made = world(Random(seed))
    for one in (made.session, made.challenge):
        if one is not None:
            assert read_outcome(canonical_json(outcome_json(one))) == one


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accepted", "00"), ("accepted", 1), ("ended", -1), ("ended", True), ("games", [1]),
        ("games", [{}]), ("members", [[]]), ("members", [{}] * 65), ("result", 7), ("session", ""),
        ("members", [{"claim": None, "fate": "free", "key": "00" * 32}]),
        ("games", [{"executed": [0, "0"], "keys": ["00" * 32] * 2, "number": 0,
                    "removed": [True, False]}]),
        ("games", [{"executed": [0, 0], "keys": ["00" * 32] * 2, "number": 0,
                    "removed": [True, False]}]),
        ("games", [{"executed": [0, 0], "keys": [], "number": 0, "removed": [1, 0]}]),
    ],
)  # fmt: skip
def test_a_malformed_outcome_is_refused(name: str, value: Any) -> None:  # PROTOCOL 14.6
    with pytest.raises(CorruptFileError):
        read_outcome(canonical_json({**outcome_json(SESSION_OUTCOME), name: value}))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_settlement(data: bytes) -> None:
    with pytest.raises(CounterpartyError):
        check_settlement(data, BOOK, SESSION_OUTCOME)
    with pytest.raises(CounterpartyError):
        read_outcome(data)


@given(st.integers(0, len(SIGNED) - 1), st.integers(1, 255))
def test_a_changed_byte_is_no_settlement(at: int, flip: int) -> None:
    data = bytearray(SIGNED)
    data[at] ^= flip
    with pytest.raises(CounterpartyError):
        check_settlement(bytes(data), BOOK, SESSION_OUTCOME)
