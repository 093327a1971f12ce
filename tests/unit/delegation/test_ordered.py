"""The sessions that an offer orders (PROTOCOL 14.5, 14.7.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.delegation.offers import (
    CLAIM,
    CLIENT,
    ENDED,
    OFFER,
    OTHER_REFEREE,
    PARTIES,
    REFEREE,
    SEAL,
    P,
    accepted,
    alarm,
    book,
    offer,
    outcome,
    withdrawn,
)

from tallystick.delegation.book import (
    challenge_of,
    challenge_rules,
    check_ordered,
    check_session,
    session_rules,
)
from tallystick.delegation.outcome import Fate
from tallystick.errors import MismatchError, UsageError

NONCE = b"n" * 32
BOOK = book(OFFER, accepted(OFFER, P[:3]), withdrawn(OFFER, P[2], 1500))
RULES = session_rules(BOOK, REFEREE.public, NONCE)

OTHERS: list[dict[str, Any]] = [
    {"job_digest": bytes(32)}, {"arity": 2}, {"sealing": SEAL + 1}, {"opening": 1}, {"budget": 0},
    {"step": 51}, {"steps": 1}, {"extension": 0}, {"offer": bytes(32)}, {"most": 64},
]  # fmt: skip


def test_the_session_of_an_offer() -> None:  # PROTOCOL 14.5
    assert RULES.allowed == (P[0], P[1]) and RULES.most == 2
    assert (RULES.offer, RULES.sealing, RULES.nonce) == (OFFER.digest, SEAL, NONCE)
    numbers = OFFER.rules
    assert (RULES.arity, RULES.opening, RULES.budget, RULES.step, RULES.steps, RULES.extension) == (
        numbers.arity, numbers.opening, numbers.budget, numbers.step, numbers.steps,
        numbers.extension,
    )  # fmt: skip
    check_session(BOOK, RULES)
    check_session(BOOK, replace(RULES, referee=OTHER_REFEREE.public, nonce=b"m" * 32))
    check_ordered(OFFER, P[1], RULES)


@pytest.mark.parametrize("changes", OTHERS, ids=lambda c: next(iter(c)))
def test_a_session_with_other_rules_is_not_the_offers(changes: dict[str, Any]) -> None:  # 14.5
    other = replace(RULES, **changes)
    with pytest.raises(MismatchError):
        check_session(BOOK, other)
    with pytest.raises(MismatchError):
        check_ordered(OFFER, P[0], other)


def test_a_session_of_other_keys_is_not_the_offers() -> None:  # PROTOCOL 14.5, 14.3.2
    for keys in ((P[0],), (P[0], P[2])):
        with pytest.raises(MismatchError):
            check_session(BOOK, replace(RULES, allowed=keys))
    clients = tuple(sorted((P[0], CLIENT.public), key=lambda key: key.raw))
    for keys in ((P[1], P[2]), tuple(P[:4]), clients):
        with pytest.raises(MismatchError):
            check_ordered(OFFER, P[0], replace(RULES, allowed=keys, most=len(keys)))
    with pytest.raises(MismatchError):
        check_ordered(OFFER, P[0], replace(RULES, referee=PARTIES[5].public))
    with pytest.raises(MismatchError):
        check_session(BOOK, replace(RULES, referee=PARTIES[5].public))


def test_a_session_of_one_provider() -> None:  # PROTOCOL 14.5
    one = offer(providers=1)
    rules = session_rules(book(one, accepted(one, P[:1])), REFEREE.public, NONCE)
    assert (rules.most, rules.allowed) == (2, (P[0],))


def test_no_session_after_a_withdrawal() -> None:  # PROTOCOL 14.4
    ended = book(OFFER, accepted(OFFER, P[:2]), withdrawn(OFFER, CLIENT.public, 1500))
    with pytest.raises(UsageError, match="ended or lapsed"):
        session_rules(ended, REFEREE.public, NONCE)
    with pytest.raises(MismatchError):
        check_session(ended, RULES)


def test_the_challenge_session() -> None:  # PROTOCOL 14.7.1
    session = outcome(OFFER.digest, dict.fromkeys(P[:2], (Fate.REMAINING, CLAIM)), result=2)
    with pytest.raises(UsageError, match="No alarm"):
        challenge_rules(BOOK, session, REFEREE.public, NONCE)
    parts = [accepted(OFFER, P[:3]), withdrawn(OFFER, P[2], 1500), alarm(OFFER, P[6], ENDED + 9)]
    alarmed = book(OFFER, *parts)
    rules = challenge_rules(alarmed, session, OTHER_REFEREE.public, NONCE)
    called = challenge_of(alarmed, session)
    assert called is not None and rules.offer == called.names
    assert rules.allowed == tuple(sorted((P[0], P[1], P[6]), key=lambda key: key.raw))
    assert (rules.most, rules.sealing) == (3, ENDED + 500 + OFFER.rules.opening)
    check_session(alarmed, rules, session)
    with pytest.raises(MismatchError):
        check_session(alarmed, replace(rules, offer=OFFER.digest), session)
    with pytest.raises(MismatchError):
        check_session(alarmed, rules)
