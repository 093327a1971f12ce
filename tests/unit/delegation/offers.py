"""Offers, their documents and outcomes for the tests of PROTOCOL 14, built in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.book import Book, open_book
from tallystick.delegation.documents import (
    Acceptance,
    Alarm,
    Document,
    Receipt,
    Withdrawal,
    sign_document,
)
from tallystick.delegation.offer import (
    Deadlines,
    Offer,
    Payer,
    Reexecution,
    SessionNumbers,
    Withdrawing,
)
from tallystick.delegation.outcome import Fate, Outcome, PlayedGame, SealedMember

SECRETS = sorted(
    (PrivateKey(bytes([n]) * 32) for n in range(1, 15)), key=lambda secret: secret.public.raw
)
KEYS = {secret.public: secret for secret in SECRETS}
REFEREE, OTHER_REFEREE, CLIENT, *PARTIES = SECRETS
P = [secret.public for secret in PARTIES]  # ascending
CLAIM, FALSE, WORSE = (bytes([n]) * 32 for n in (0xC1, 0xF1, 0xF2))
SESSION, AGAIN, HEAD, HEAD_AGAIN = (bytes([n]) * 32 for n in (0x51, 0x52, 0x61, 0x62))
ACCEPT, WITHDRAW, SEAL, CHALLENGE, ENDED = 1000, 2000, 3000, 500, 9000

OFFER = Offer(
    client=CLIENT.public,
    job_digest=bytes([7]) * 32,
    nonce=bytes([8]) * 32,
    unit="credit",
    providers=3,
    least=1,
    most_parties=64,
    referees=(REFEREE.public, OTHER_REFEREE.public),
    price=100,
    provider_stake=1000,
    client_stake=900,
    alarm_stake=301,
    absence=40,
    silence=250,
    reward=333,
    deadlines=Deadlines(ACCEPT, WITHDRAW, SEAL, CHALLENGE),
    rules=SessionNumbers(20, 60_000, 60_000, 50, 1000, 5000),
    withdrawal=Withdrawing(client=70, provider=30),
    reexecution=Reexecution(Payer.EACH, 2, 100),
)


def offer(**changes: Any) -> Offer:
    """OFFER with changes."""
    return replace(OFFER, **changes)


def received(document: Document, time: int, referee: PrivateKey = REFEREE) -> list[bytes]:
    """The signed document with its receipt."""
    digest = document.digest
    of = document.digest if isinstance(document, Offer) else document.offer
    receipt = Receipt(of, digest, time, referee.public)
    return [sign_document(KEYS[document.signer], document), sign_document(referee, receipt)]


def accepted(order: Offer, keys: Iterable[PublicKey], time: int = 500) -> list[bytes]:
    """Acceptances of `keys`, all at one time."""
    return [e for key in keys for e in received(Acceptance(order.digest, key), time)]


def withdrawn(order: Offer, key: PublicKey, time: int) -> list[bytes]:
    return received(Withdrawal(order.digest, key), time)


def alarm(order: Offer, key: PublicKey, time: int = ENDED + 1, claim: bytes = CLAIM) -> list[bytes]:
    return received(Alarm(order.digest, SESSION, claim, key), time)


def book(order: Offer, *documents: Sequence[bytes]) -> Book:
    """The book of an offer."""
    return open_book([sign_document(CLIENT, order), *(e for part in documents for e in part)])


def game(number: int, keys: Sequence[PublicKey], removed: int, *executed: int) -> PlayedGame:
    """A game that removed the parties in the bits of `removed`."""
    steps = (executed[0], executed[1]) if executed else (0, 0)
    return PlayedGame(number, (keys[0], keys[1]), (bool(removed & 1), bool(removed & 2)), steps)


def outcome(
    names: bytes,
    fates: dict[PublicKey, tuple[Fate, bytes | None]],
    accepted: bytes | None = CLAIM,
    games: Sequence[PlayedGame] = (),
    **changes: Any,
) -> Outcome:
    """The outcome of a session. Its result is 1 with an accepted claim, else 0, unless stated."""
    made: dict[str, Any] = {
        "offer": names, "session": SESSION, "head": HEAD, "ended": ENDED,
        "result": 0 if accepted is None else 1, "accepted": accepted,
        "members": tuple(
            SealedMember(key, *fates[key]) for key in sorted(fates, key=lambda key: key.raw)
        ),
        "games": tuple(games),
    }  # fmt: skip
    return Outcome(**{**made, **changes})
