"""Random sessions between in-memory parties of every habit, and the logs that they leave."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from unit.delegation.players import REFEREE, Player, Time, rules
from unit.protocol.simulator import Party

from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.seals import SealOpening, sign_opening, sign_seal
from tallystick.delegation.session import ENDED, OPENING, SEALING
from tallystick.errors import CounterpartyError
from tallystick.job.job import Job
from tallystick.numerics.contracts import find_contract
from tallystick.protocol.messages import ANSWERED, UNABLE, Answer, sign_answer

HABITS = ("honest",) * 9 + (
    "silent", "absent", "two seals", "two openings", "false opening", "never opens", "garbage",
    "unable", "two-faced", "slow", "another commitment",
)  # fmt: skip


class Actor(Player):
    """A party with a habit. It acts when it is chosen."""

    def __init__(self, party: Party, seed: int, habit: str, rng: random.Random) -> None:
        super().__init__(party, seed)
        self.habit, self.rng = habit, rng
        self.said: dict[bytes, bytes] = {}

    def other(self, opening: SealOpening) -> SealOpening:
        """A second, different opening."""
        if self.habit == "another commitment":
            return replace(opening, commitment=Player(self.party, 77).party.commitment)
        return replace(opening, nonce=self.rng.randbytes(32))

    def message(self, arbiter: Arbiter) -> bytes | None:
        """What it sends now, if anything."""
        session, job = arbiter.session, self.party.job.digest
        opening, again = self.opening(session.session), self.rng.random() < 0.5
        if self.habit == "absent" or (self.habit == "slow" and self.rng.random() < 0.7):
            return None
        if session.state == SEALING:
            second = self.habit == "two seals" and again
            if self.habit == "another commitment":
                second = True
            return sign_seal(self.key, job, self.other(opening) if second else opening)
        if session.state == OPENING:
            if self.habit == "never opens":
                return None
            false = self.habit in ("false opening", "another commitment")
            second = self.habit == "two openings" and again
            return sign_opening(self.key, self.other(opening) if false or second else opening)
        return self.answer(arbiter)

    def answer(self, arbiter: Arbiter) -> bytes | None:
        for match in arbiter.session.matches:
            for party, query in match.owed.items():
                if match.members[party].key == self.key.public and not match.ended:
                    return self.reply(query)
        if self.habit == "two-faced" and self.said and self.rng.random() < 0.3:
            return self.false(self.rng.choice(list(self.said)))
        return None

    def false(self, query: bytes, status: int = ANSWERED) -> bytes:
        run, body = self.party.run, self.rng.randbytes(33) if status == ANSWERED else b""
        answer = Answer(run.job_digest, run.run_root, query, status, body)
        return sign_answer(self.key, answer)

    def reply(self, query: bytes) -> bytes | None:
        if self.habit == "silent" and self.rng.random() < 0.5:
            return None
        if self.habit in ("garbage", "unable") and self.rng.random() < 0.2:
            return self.false(query, UNABLE if self.habit == "unable" else ANSWERED)
        if query not in self.said:
            self.said[query] = self.party.answer(query)
        return self.said[query]


def random_rules(job: Job, actors: Sequence[Actor], rng: random.Random) -> dict[str, object]:
    return {
        "nonce": rng.randbytes(32),
        "most": rng.randint(2, max(2, len(actors))),
        "arity": rng.choice([2, 3, 20]),
        "extension": rng.choice([0, 5, 50]),
        "budget": rng.choice([0, 100, 500]),
        "opening": rng.choice([0, 300, 1000]),
    }


def random_log(
    job: Job, parties: Sequence[Party], rng: random.Random, habits: Sequence[str] = HABITS
) -> list[bytes]:
    """The log of a session with two to seven parties, played to its end.

    Two under a contract with logs (10.1).
    """
    has_log = find_contract(job.commitment.contract).keeps_log
    count = 2 if has_log else rng.randint(2, 7)
    actors = [Actor(rng.choice(parties), 11 + i, rng.choice(habits), rng) for i in range(count)]
    time = Time()
    log: list[bytes] = []
    listed = actors if rng.random() < 0.7 else []
    chosen = rules(job, listed, **random_rules(job, actors, rng))
    arbiter = Arbiter(job.terms, REFEREE, log, time, chosen)

    def restart() -> Arbiter:
        return Arbiter(job.terms, REFEREE, log, time)

    for _ in range(4000):
        if arbiter.session.state == ENDED:
            return log
        arbiter = _moved(arbiter, rng.choice(actors), rng, restart, time)
    raise AssertionError("the session does not end")


def _moved(
    arbiter: Arbiter,
    actor: Actor,
    rng: random.Random,
    restart: Callable[[], Arbiter],
    time: Time,
) -> Arbiter:
    chance = rng.random()
    if chance < 0.01:
        time.now += rng.choice([0, 1, 700, 5000])
        return restart()
    if chance < 0.06:
        deadline = arbiter.tick()
        if deadline is not None and rng.random() < 0.35:
            time.now = max(time.now, deadline + rng.choice([-1, 0, 0, 1, 1, 30]))
        else:
            time.now += rng.randint(1, 40)
        if rng.random() < 0.5:
            arbiter.tick()
        return arbiter
    message = actor.message(arbiter)
    if message is not None:
        time.now += rng.choice([0, 0, 1])
        with contextlib.suppress(CounterpartyError):
            arbiter.take(message)
    return arbiter
