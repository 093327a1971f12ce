"""Random worlds for settlements: parties with a way to behave, and sessions that follow from it.

The sessions are played by the rules of PROTOCOL 10.4 to 10.6, written again in a few lines: sides
in order, first signers, a conviction removes the signer. Who wins a game follows from the way the
two parties behave, and from chance between liars. An honest party never loses one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from unit.delegation.offers import (
    AGAIN,
    CLAIM,
    CLIENT,
    ENDED,
    FALSE,
    HEAD_AGAIN,
    WORSE,
    P,
    offer,
    outcome,
)

from tallystick.commit.signing import PublicKey
from tallystick.delegation.book import Book, Received, challenge_of, providers_of
from tallystick.delegation.documents import Acceptance, Alarm, Withdrawal
from tallystick.delegation.offer import Offer, Payer, Reexecution, Withdrawing
from tallystick.delegation.outcome import Fate, Outcome, PlayedGame

HONEST, LIAR, THROWER, SILENT, UNOPENED, ABSENT, DOUBLE = range(7)
Seat = tuple[int, bytes]  # the way to behave, and the claim


@dataclass
class World:
    """An offer, its book, the outcomes, and how each key behaved."""

    order: Offer
    book: Book
    session: Outcome | None = None
    challenge: Outcome | None = None
    seats: dict[PublicKey, Seat] = field(default_factory=dict)
    auditors: dict[PublicKey, Seat] = field(default_factory=dict)


def _seat(random: Random) -> Seat:
    way = random.choice(
        (HONEST, HONEST, LIAR, LIAR, LIAR, THROWER, SILENT, UNOPENED, ABSENT, DOUBLE)
    )
    if way in (HONEST, THROWER):
        return way, CLAIM
    return way, random.choice((FALSE, WORSE) if way == LIAR else (CLAIM, FALSE, WORSE))


def _removed(random: Random, seats: Sequence[Seat]) -> tuple[bool, bool]:
    """Which of two parties their game removes."""
    ways = [way for way, _ in seats]
    if HONEST in ways:
        return ways[0] != HONEST, ways[1] != HONEST
    if SILENT in ways:
        return ways[0] == SILENT, ways[1] == SILENT
    return random.choice(((True, False), (False, True), (True, True)))


def session(random: Random, names: bytes, seats: dict[PublicKey, Seat], **changes: Any) -> Outcome:
    """The outcome of a session of these parties."""
    fates: dict[PublicKey, tuple[Fate, bytes | None]] = {}
    for key, (way, claim) in seats.items():
        if way == DOUBLE:
            fates[key] = (Fate.EXCLUDED, random.choice((None, claim)))
        elif way != ABSENT:
            fates[key] = (Fate.UNOPENED, None) if way == UNOPENED else (Fate.REMAINING, claim)
    games: list[PlayedGame] = []

    def signers() -> dict[bytes, list[PublicKey]]:
        found: dict[bytes, list[PublicKey]] = {}
        for key in sorted(fates, key=lambda key: key.raw):
            fate, claim = fates[key]
            if fate is Fate.REMAINING and claim is not None:
                found.setdefault(claim, []).append(key)
        return dict(sorted(found.items()))

    undecided = False
    contested = len(signers()) > 1
    while len(sides := signers()) > 1 and not undecided:
        firsts = [keys[0] for keys in sides.values()]
        for pair in zip(firsts[::2], firsts[1::2], strict=False):
            undecided = random.random() < 0.03
            out = (False, False) if undecided else _removed(random, [seats[k] for k in pair])
            steps = (random.randrange(90), random.randrange(90))
            games.append(PlayedGame(len(games), (pair[0], pair[1]), out, steps))
            for key, gone in zip(pair, out, strict=True):
                if gone:
                    silent = seats[key][0] == SILENT
                    fates[key] = (Fate.SILENT if silent else Fate.CONVICTED, fates[key][1])
            if undecided:
                break
    left = signers()
    claim = next(iter(left)) if len(left) == 1 and not undecided else None
    result = 4 if undecided else 0 if claim is None else 1 if contested else 2
    return outcome(names, fates, claim, games, **{"result": result, **changes})


def world(random: Random) -> World:
    """One offer, from its acceptances to its settlement's inputs."""
    stake = random.choice((0, 7, 1000))
    order = offer(
        providers=random.randint(1, 6), price=random.choice((0, 1, 100)), provider_stake=stake,
        client_stake=10_000, alarm_stake=random.choice((0, 1, 10, 301)),
        absence=random.randint(0, stake), silence=random.randint(0, stake),
        reward=random.randint(0, stake), most_parties=random.choice((6, 64)),
        withdrawal=Withdrawing(random.randint(0, 100), random.randint(0, stake)),
        reexecution=Reexecution(random.choice(list(Payer)), random.choice((0, 1, 7)), 100),
    )  # fmt: skip
    keys = random.sample(P[:8], random.randint(1, 8))
    digest = order.digest
    documents: list[tuple[int, Received]]
    documents = [(random.randint(1, 1010), Acceptance(digest, key)) for key in keys]
    for key in (*keys, CLIENT.public):
        if random.random() < 0.12:
            documents.append((random.randint(500, 2010), Withdrawal(digest, key)))
    # Signatures are tested elsewhere: they would take most of the time here.
    made = World(order, Book(order, tuple(documents)))
    providers = providers_of(made.book)
    if not providers.held:
        return made
    made.seats = {key: _seat(random) for key in providers.standing}
    made.session = session(random, order.digest, made.seats)
    if random.random() < 0.6 and made.session.accepted is not None:
        _alarmed(random, made)
    return made


def _alarmed(random: Random, made: World) -> None:
    first = made.session
    assert first is not None and first.accepted is not None
    digest = made.order.digest
    raised = tuple(
        (ENDED + random.randint(0, 501), Alarm(digest, first.session, first.accepted, key))
        for key in random.sample([*P[8:], CLIENT.public], random.randint(1, 3))
    )
    made.book = Book(made.order, (*made.book.received, *raised))
    called = challenge_of(made.book, first)
    if called is None:
        return
    made.auditors = {key: _seat(random) for key in called.auditors}
    defend: dict[PublicKey, Seat] = {}
    for key in called.providers:
        way, claim = made.seats[key]
        if way not in (HONEST, THROWER):
            # A liar may go on, stay away, or come with another claim.
            way, claim = random.choice(((way, claim), (ABSENT, claim), _seat(random)))
            made.seats[key] = (way if way != HONEST else LIAR, claim)
            way = LIAR if way == HONEST and claim != CLAIM else way
        defend[key] = (way, claim)
    made.challenge = session(
        random, called.names, {**defend, **made.auditors},
        session=AGAIN, head=HEAD_AGAIN, ended=called.begins + 1,
    )  # fmt: skip
