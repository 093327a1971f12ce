"""Parties of a session in memory, and a loop that brings turns and replies (PROTOCOL 10, 13)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace

from unit.protocol.simulator import Party

from tallystick.commit.signing import PrivateKey, PublicKey, sign_run
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import SealOpening, sign_opening, sign_seal
from tallystick.delegation.session import ENDED
from tallystick.delegation.turns import AskOpening, AskSeal, Play, Turn, open_turn
from tallystick.errors import CounterpartyError
from tallystick.job.job import Job

REFEREE = PrivateKey(bytes([3]) * 32)


class Player:
    """The run of `party` under a key of its own, made from `seed`."""

    def __init__(self, party: Party, seed: int) -> None:
        self.party = copy.copy(party)
        self.party.key = self.key = PrivateKey(seed.to_bytes(32, "big"))
        self.party.run = replace(party.run, signer=self.key.public)
        self.party.commitment = sign_run(self.key, self.party.run).to_bytes()
        self.asked = 0

    def opening(self, session: bytes) -> SealOpening:
        nonce = self.key.public.raw[::-1]
        return SealOpening(session, self.key.public, nonce, self.party.commitment)

    def replies(self, turn: Turn) -> list[bytes]:
        """The signed messages with which this party replies; none for silence."""
        request, job = turn.request, self.party.job.digest
        if isinstance(request, AskSeal):
            return [sign_seal(self.key, job, self.opening(turn.session))]
        if isinstance(request, AskOpening):
            return [sign_opening(self.key, self.opening(turn.session))]
        if isinstance(request, Play) and request.query:
            self.asked += 1
            return [self.party.answer(request.query)]
        return []


class Silent(Player):
    """Replies to nothing from the request of kind `since` on; for Play after `words` answers."""

    def __init__(self, party: Party, seed: int, since: int, words: int = 0) -> None:
        super().__init__(party, seed)
        self.since, self.words = since, words

    def replies(self, turn: Turn) -> list[bytes]:
        kind = turn.request.KIND
        late = kind > self.since or (kind == self.since and self.asked >= self.words)
        return [] if late else super().replies(turn)


class Time:
    """A clock in milliseconds that tests move."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def rules(job: Job, players: Iterable[Player] = (), **changed: object) -> Rules:
    """Rules with short times; of `players` alone, where there are any."""
    allowed = sorted((p.key.public for p in players), key=lambda key: key.raw)
    base = Rules(
        job.digest, b"n" * 32, REFEREE.public, 20, max(2, min(64, len(allowed))), 1000, 1000, 500,
        2, 10, 50, tuple(allowed),
    )  # fmt: skip
    return replace(base, **changed)  # type: ignore[arg-type]


def playing(
    job: Job, players: list[Player], time: Time, log: list[bytes] | None = None, **changed: object
) -> Arbiter:
    """A session whose games have begun."""
    kept = [] if log is None else log
    arbiter = Arbiter(job.terms, REFEREE, kept, time, rules(job, players, **changed))
    session = arbiter.session.session
    for player in players:
        arbiter.take(sign_seal(player.key, job.digest, player.opening(session)))
    for player in players:
        arbiter.take(sign_opening(player.key, player.opening(session)))
    return arbiter


def play(
    arbiter: Arbiter,
    players: Iterable[Player],
    time: Time,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Bring turns and replies until the session has ended. A millisecond passes with each turn;
    where no party replies, time goes on to the next deadline."""
    by_key = {p.key.public: p for p in players}
    known: dict[PublicKey, int] = {}
    for _ in range(100_000):
        if arbiter.session.state == ENDED:
            return
        invitation = arbiter.invitation()
        turns = dict.fromkeys(by_key, invitation) if invitation else arbiter.outgoing(known)
        moved = False
        for key, data in turns.items():
            assert data is not None
            turn, _ = open_turn(data, (REFEREE.public,))
            for message in by_key[key].replies(turn):
                time.now += 1
                before = arbiter.session.length
                try:
                    arbiter.take(message, key if isinstance(turn.request, Play) else None)
                except CounterpartyError:
                    continue
                moved = moved or arbiter.session.length > before
                watch()
        if not moved:
            deadline = arbiter.tick()
            if arbiter.session.state == ENDED:
                return
            assert deadline is not None, "no party owes anything, and the session has not ended"
            time.now = max(time.now, deadline + 1)
            arbiter.tick()
            watch()
    raise AssertionError("the session does not end")
