"""The rules of a session that an offer orders, for `referee` (PROTOCOL 14.5, 14.7.1)."""

from __future__ import annotations

import os

from tallystick.cli.given import refuse_options
from tallystick.cli.offer import now_ms, read_book
from tallystick.cli.outcomes import session_outcome
from tallystick.commit.signing import PublicKey
from tallystick.delegation.book import alarms_until
from tallystick.delegation.ordered import challenge_rules, session_rules
from tallystick.delegation.rules import Rules
from tallystick.errors import UsageError

_FIXED = ("allow", "arity", "sealing", "opening", "budget", "step", "steps", "extension")


def refuse_fixed() -> None:
    """Raise UsageError where the command line names a number that the offer fixes."""
    refuse_options(_FIXED, "cannot be given, because the offer fixes it.")


def ordered_rules(
    documents: tuple[str, ...], challenge_of: str | None, job: str, referee: PublicKey
) -> Rules:
    """The rules of the session that the documents order; of the challenge session where
    `challenge_of` names the directory of the offer's session.

    Raises UsageError where no session is ordered, or not yet.
    """
    book, nonce = read_book(documents), os.urandom(32)
    if challenge_of is not None:
        first = session_outcome("session", None, challenge_of, job, book)
        assert first is not None
        rules = challenge_rules(book, first, referee, nonce)
        if now_ms() <= alarms_until(book.offer, first):
            raise UsageError(
                "The challenge session cannot begin yet: more alarms may come.",
                "Wait for the end of the offer's `challenge` time.",
            )
        return rules
    if now_ms() <= book.offer.deadlines.withdraw:
        raise UsageError(
            "The session cannot begin yet: the providers and the client may still withdraw.",
            "Wait for the offer's `withdraw` deadline, and collect the withdrawals.",
        )
    return session_rules(book, referee, nonce)
