"""The sessions that an offer orders: their rules, made and checked (PROTOCOL 14.5, 14.7.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from tallystick.commit.signing import PublicKey
from tallystick.delegation.book import Book, challenge_of, may_provide, providers_of
from tallystick.delegation.offer import Offer
from tallystick.delegation.outcome import Outcome
from tallystick.delegation.rules import MIN_PARTIES, Rules
from tallystick.errors import MismatchError, UsageError


def session_rules(book: Book, referee: PublicKey, nonce: bytes) -> Rules:
    """The rules of the offer's session (14.5). Raises UsageError where there is none."""
    providers = providers_of(book)
    if not providers.held:
        raise UsageError("The offer has no session: it has ended or lapsed.", "Settle it.")
    return _rules(book.offer, referee, nonce, providers.standing)


def challenge_rules(book: Book, session: Outcome, referee: PublicKey, nonce: bytes) -> Rules:
    """The rules of the challenge session (14.7.1). Raises UsageError where no alarm asks for it."""
    called = challenge_of(book, session)
    if called is None:
        raise UsageError("No alarm takes effect, so there is no challenge.", "Settle the offer.")
    rules = _rules(book.offer, referee, nonce, called.keys)
    sealing = called.begins + book.offer.rules.opening
    return replace(rules, sealing=sealing, offer=called.names)


def check_session(book: Book, rules: Rules, session: Outcome | None = None) -> None:
    """Raise MismatchError unless `rules` are those that the offer orders.

    With `session`, the outcome of the offer's session, they are those of its challenge session.
    """
    try:
        made = (
            session_rules(book, rules.referee, rules.nonce)
            if session is None
            else challenge_rules(book, session, rules.referee, rules.nonce)
        )
    except UsageError as error:
        _other(error.message)
    if made != rules:
        _other("its rules, or the keys that may take part, are others")


def check_ordered(offer: Offer, key: PublicKey, rules: Rules) -> None:
    """Raise MismatchError unless a provider that has accepted `offer` may seal under `rules`.

    It does not know which other keys stand, and takes any that may (14.3.2).
    """
    if key not in rules.allowed or not all(may_provide(offer, other) for other in rules.allowed):
        _other("the keys that may take part are not those of its providers")
    if not offer.least <= len(rules.allowed) <= offer.providers:
        _other("it has too many or too few providers")
    if rules.referee not in offer.referees:
        _other("the offer does not name its referee")
    if rules != _rules(offer, rules.referee, rules.nonce, rules.allowed):
        _other("its rules are others")


def _rules(offer: Offer, referee: PublicKey, nonce: bytes, keys: tuple[PublicKey, ...]) -> Rules:
    if referee not in offer.referees:
        raise UsageError("The offer does not name this referee.", "Choose one that it names.")
    numbers = offer.rules
    return Rules(
        job_digest=offer.job_digest,
        nonce=nonce,
        referee=referee,
        arity=numbers.arity,
        most=max(MIN_PARTIES, len(keys)),
        sealing=offer.deadlines.seal,
        opening=numbers.opening,
        budget=numbers.budget,
        step=numbers.step,
        steps=numbers.steps,
        extension=numbers.extension,
        allowed=keys,
        offer=offer.digest,
    )


def _other(why: str) -> NoReturn:
    raise MismatchError(f"This session is not the one that the offer orders: {why}.", "Refuse it.")
