"""Offers and their documents: bytes, signatures, and what is refused (PROTOCOL 14.1 to 14.5)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.delegation.offers import (
    ACCEPT,
    AGAIN,
    CLAIM,
    CLIENT,
    ENDED,
    FALSE,
    KEYS,
    OFFER,
    OTHER_REFEREE,
    PARTIES,
    REFEREE,
    SESSION,
    WITHDRAW,
    P,
    accepted,
    alarm,
    book,
    offer,
    outcome,
    received,
    withdrawn,
)

from tallystick.commit.encoding import canonical_json, sha256
from tallystick.commit.signing import Envelope, sign_envelope
from tallystick.delegation.book import challenge_of, open_book, providers_of
from tallystick.delegation.documents import (
    Acceptance,
    Alarm,
    Receipt,
    Withdrawal,
    open_document,
    payload_type,
    sign_document,
)
from tallystick.delegation.offer import Deadlines, Payer, Reexecution, Withdrawing
from tallystick.delegation.outcome import Fate
from tallystick.errors import (
    CorruptFileError,
    CounterpartyError,
    SignatureInvalidError,
    UsageError,
)

DOCUMENTS = (
    OFFER,
    Acceptance(OFFER.digest, P[0]),
    Withdrawal(OFFER.digest, P[0]),
    Alarm(OFFER.digest, SESSION, CLAIM, P[3]),
    Receipt(OFFER.digest, bytes(32), 77, REFEREE.public),
)
SECRET = {d.NAME: KEYS[d.signer] for d in DOCUMENTS}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.NAME)
def test_a_document_comes_back_from_its_bytes(document: Any) -> None:  # PROTOCOL 14.1
    envelope = sign_document(SECRET[document.NAME], document)
    assert open_document(envelope) == document
    assert document.digest == sha256(document.payload())
    assert json.loads(document.payload())["kind"] == f"tallystick/{document.NAME}/1"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.NAME)
def test_another_key_signs_no_document(document: Any) -> None:  # PROTOCOL 14.1
    thief = PARTIES[5]
    with pytest.raises(UsageError, match="another key"):
        sign_document(thief, document)
    forged = sign_envelope(thief, payload_type(document.NAME), document.payload()).to_bytes()
    with pytest.raises(SignatureInvalidError):
        open_document(forged)
    other = sign_envelope(
        SECRET[document.NAME], "application/vnd.tallystick.other.v1+json", document.payload()
    )
    with pytest.raises(SignatureInvalidError):
        open_document(other.to_bytes())


def test_a_document_has_one_signature() -> None:  # PROTOCOL 14.1
    one = Envelope.from_bytes(sign_document(CLIENT, OFFER))
    for signatures in ((), one.signatures * 2):
        with pytest.raises(CounterpartyError):
            open_document(replace(one, signatures=signatures).to_bytes())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.NAME)
def test_members_are_exactly_those_of_the_clause(document: Any) -> None:  # PROTOCOL 14.1
    value = json.loads(document.payload())
    key, kind = SECRET[document.NAME], payload_type(document.NAME)
    for name in value:
        less = {k: v for k, v in value.items() if k != name}
        with pytest.raises(CorruptFileError):
            open_document(sign_envelope(key, kind, canonical_json(less)).to_bytes())
        for wrong in (None, True, -1, (1 << 53) - 1, "x", [], {}, ["00" * 32] * 65):
            changed = canonical_json({**value, name: wrong})
            if changed == document.payload() or (name, wrong) in (("unit", "x"), ("keys", [])):
                continue
            with pytest.raises(CounterpartyError):
                open_document(sign_envelope(key, kind, changed).to_bytes())
    with pytest.raises(CorruptFileError):
        more = canonical_json({**value, "more": 1})
        open_document(sign_envelope(key, kind, more).to_bytes())


@given(st.integers(0, len(DOCUMENTS) - 1), st.integers(0, 4000), st.integers(1, 255))
def test_a_changed_byte_is_never_another_document(which: int, at: int, flip: int) -> None:
    document = DOCUMENTS[which]
    data = bytearray(sign_document(SECRET[document.NAME], document))
    data[at % len(data)] ^= flip
    with pytest.raises(CounterpartyError):
        open_document(bytes(data))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_no_document(data: bytes) -> None:
    with pytest.raises(CounterpartyError):
        open_document(data)


REFUSED: list[dict[str, Any]] = [
    {"providers": 0}, {"providers": 65}, {"least": 4}, {"least": 0}, {"most_parties": 1},
    {"most_parties": 2}, {"most_parties": 65}, {"price": -1}, {"price": (1 << 40) + 1},
    {"absence": 1001}, {"silence": 1001}, {"reward": 1001}, {"unit": ""}, {"unit": "x" * 65},
    {"unit": "a\nb"}, {"unit": "\N{EURO SIGN}"}, {"referees": ()},
    {"referees": (OTHER_REFEREE.public, REFEREE.public)}, {"referees": (REFEREE.public,) * 2},
    {"referees": tuple(sorted((CLIENT.public, REFEREE.public), key=lambda k: k.raw))},
    {"keys": (REFEREE.public,)}, {"keys": (P[1], P[0])},
    {"withdrawal": Withdrawing(301, 0)}, {"withdrawal": Withdrawing(0, 1001)},
    {"reexecution": Reexecution(Payer.CLIENT, 1, 301)},
    {"deadlines": Deadlines(5, 4, 9, 0)}, {"deadlines": Deadlines(1, 9, 9, 0)},
    {"deadlines": Deadlines(1, 2, (1 << 52) + 1, 0)}, {"deadlines": Deadlines(1, 2, 3, 1 << 41)},
    {"rules": replace(OFFER.rules, arity=1)}, {"rules": replace(OFFER.rules, steps=1 << 40)},
]  # fmt: skip


@pytest.mark.parametrize("changes", REFUSED, ids=lambda c: " ".join(map(str, c)))
def test_an_offer_that_breaks_its_clause_is_none(changes: dict[str, Any]) -> None:  # 14.2, 14.2.1
    with pytest.raises(UsageError):
        offer(**changes)


def test_the_borders_of_an_offer_are_allowed() -> None:  # PROTOCOL 14.2
    offer(withdrawal=Withdrawing(300, 1000), absence=1000, silence=1000, reward=1000)
    offer(reexecution=Reexecution(Payer.CLIENT, 1, 300))
    offer(reexecution=Reexecution(Payer.LOSER, 1 << 40, 1 << 40))
    offer(deadlines=Deadlines(1, 1, 2, 0), price=1 << 40, unit="x" * 64)


# ---- the book -----------------------------------------------------------------------------------


def test_providers_are_taken_by_time_then_key() -> None:  # PROTOCOL 14.3.2
    late = accepted(OFFER, [P[0]], ACCEPT + 1)
    found = providers_of(
        book(OFFER, late, accepted(OFFER, [P[4], P[2], P[3]], ACCEPT), accepted(OFFER, [P[5]], 1))
    )
    assert found.taken == (P[5], P[2], P[3])
    assert (found.standing, found.held) == ((P[2], P[3], P[5]), True)


def test_a_document_without_a_referees_receipt_has_no_effect() -> None:  # PROTOCOL 14.3.1
    bare = sign_document(PARTIES[0], Acceptance(OFFER.digest, P[0]))
    stranger = received(Acceptance(OFFER.digest, P[1]), 1, PARTIES[7])
    one = book(OFFER, [bare], stranger)
    assert providers_of(one).taken == () and len(one.unreceipted) == 2


def test_the_earliest_receipt_counts() -> None:  # PROTOCOL 14.3.1
    late = received(Acceptance(OFFER.digest, P[0]), ACCEPT + 5)
    early = received(Acceptance(OFFER.digest, P[0]), ACCEPT, OTHER_REFEREE)
    assert providers_of(book(OFFER, late, early)).taken == (P[0],)
    assert providers_of(book(OFFER, late, late)).taken == ()


def test_a_referee_that_contradicts_itself_settles_nothing() -> None:  # PROTOCOL 14.3.1
    with pytest.raises(CounterpartyError, match="two times"):
        book(OFFER, accepted(OFFER, [P[0]], 1), accepted(OFFER, [P[0]], 2))


def test_the_clients_and_the_referees_keys_provide_nothing() -> None:  # PROTOCOL 14.3.2
    one = book(OFFER, accepted(OFFER, [CLIENT.public, REFEREE.public, P[0]]))
    assert providers_of(one).taken == (P[0],)
    closed = offer(keys=(P[1], P[2]))
    assert providers_of(book(closed, accepted(closed, P[:3]))).taken == (P[1], P[2])


@pytest.mark.parametrize(("time", "stands"), [(WITHDRAW, False), (WITHDRAW + 1, True)])
def test_a_withdrawal_has_a_deadline(time: int, stands: bool) -> None:  # PROTOCOL 14.4
    found = providers_of(book(OFFER, accepted(OFFER, P[:2]), withdrawn(OFFER, P[0], time)))
    assert (P[0] in found.standing) is stands and P[1] in found.standing


def test_after_the_client_has_withdrawn_nothing_has_an_effect() -> None:  # PROTOCOL 14.4
    parts = [accepted(OFFER, [P[0], P[1]], 10), accepted(OFFER, [P[2]], 20)]
    parts += [withdrawn(OFFER, P[0], 19), withdrawn(OFFER, P[1], 20)]
    found = providers_of(book(OFFER, *parts, withdrawn(OFFER, CLIENT.public, 20)))
    assert found.taken == (P[0], P[1]) and found.withdrawn == (P[0],)
    assert (found.standing, found.client_withdrew, found.held) == ((P[1],), True, False)


def test_too_few_providers_lapse_the_offer() -> None:  # PROTOCOL 14.4.1
    two = offer(least=2)
    assert providers_of(book(two, accepted(two, P[:2]))).held
    left = providers_of(book(two, accepted(two, P[:2]), withdrawn(two, P[1], 1500)))
    assert not left.held and left.standing == (P[0],)


def test_a_book_is_of_one_offer() -> None:
    other = offer(price=5)
    with pytest.raises(UsageError, match="another offer"):
        book(OFFER, accepted(other, [P[0]]))
    with pytest.raises(UsageError, match="not one"):
        open_book([sign_document(CLIENT, OFFER), sign_document(CLIENT, other)])
    with pytest.raises(UsageError, match="not one"):
        open_book(accepted(OFFER, [P[0]]))


# ---- alarms -------------------------------------------------------------------------------------

LEFT = dict.fromkeys(P[:2], (Fate.REMAINING, CLAIM)) | {P[2]: (Fate.UNOPENED, None)}


def test_who_is_called_to_a_challenge_session() -> None:  # PROTOCOL 14.7, 14.7.1, 14.7.2
    ended = outcome(OFFER.digest, LEFT, result=2)
    late, border = ENDED + 501, ENDED + 500
    parts = [accepted(OFFER, P[:3]), alarm(OFFER, P[7], late), alarm(OFFER, P[6], border)]
    parts += [alarm(OFFER, CLIENT.public, border), alarm(OFFER, P[5], 9001, FALSE)]
    parts += [alarm(OFFER, P[0], 9001), alarm(OFFER, REFEREE.public, 9001)]
    one = book(OFFER, *parts)
    called = challenge_of(one, ended)
    assert called is not None and called.begins == border
    first, second = sorted((CLIENT.public, P[6]), key=lambda key: key.raw)
    assert called.auditors == (first, second) and called.providers == (P[0], P[1])
    assert called.names == Alarm(OFFER.digest, SESSION, CLAIM, first).digest
    assert list(called.keys) == sorted((*P[:2], first, second), key=lambda key: key.raw)
    assert challenge_of(one, replace(ended, session=AGAIN)) is None
    none = outcome(OFFER.digest, {P[2]: (Fate.UNOPENED, None)}, None)
    assert challenge_of(one, none) is None


def test_under_a_contract_with_logs_a_challenge_has_two() -> None:  # PROTOCOL 14.7.2
    two = offer(most_parties=2, providers=2)
    parts = [accepted(two, P[:2]), alarm(two, P[4], 9002), alarm(two, P[5], 9001)]
    ended = outcome(two.digest, dict.fromkeys(P[:2], (Fate.REMAINING, CLAIM)), result=2)
    called = challenge_of(book(two, *parts), ended)
    assert called is not None
    assert (called.providers, called.auditors) == ((P[0],), (P[5],))


def test_a_public_key_is_checked() -> None:  # COMMITMENTS 9.1.1
    payload = canonical_json({**json.loads(DOCUMENTS[1].payload()), "provider": "00" * 32})
    envelope = sign_envelope(PARTIES[0], payload_type("acceptance"), payload)
    with pytest.raises(CorruptFileError, match="not a valid key"):
        open_document(envelope.to_bytes())
