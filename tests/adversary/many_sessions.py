"""Thousands of sessions of random parties, with a referee and parties that crash.

    PYTHONPATH=tests python tests/adversary/many_sessions.py [--games 100000] [--seed 1] [--out F]

Each session has two to five parties, one of them honest (in one of five sessions two): liars out of
a pool of runs, who say anything or play an attack of attacks/sessions, and Sybils on the honest
claim. The referee stops before or after any write and goes on from its log; parties stop and get
their turn again. After every step PROTOCOL P2, P4 and P5 are checked, at the end P1 (the honest
claim is accepted) and P7, and in a share of the sessions the judge repeats every verdict offline
(P3) and the log is folded again (P9). `--games` counts pairwise games.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adversary.games import MOST_ROUNDS, MOVES, STEPS, liars, make_job, message
from adversary.members import Facts, Member, facts_of_party
from adversary.sessions import (
    Ended,
    Seat,
    Table,
    honest_provider,
    keys,
    make_rules,
    session_attacks,
)
from unit.protocol.simulator import Party

from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import CONVICTED
from tallystick.installed import tallystick_version
from tallystick.job.job import Job

JUDGED = 0.05  # of the sessions
KEYS = keys(64)


class World:
    """A job, the honest run's facts, those of many false runs, and the attacks."""

    def __init__(self, job: Job, rng: random.Random, lies: int) -> None:
        honest = Party(job)
        self.job, self.honest = job, facts_of_party(honest)
        self.lies = [facts_of_party(a.party) for a in liars(job, honest, rng, lies)]
        attacks = session_attacks()
        attacks.pop("flooding")  # in the matrix; here it would take the time of many sessions
        self.attacks = list(attacks.values())
        self.provider = honest_provider()


def random_mover(base: type[Any], rng: random.Random, odds: float, slow: float) -> type[Any]:
    """A party whose answers are changed, at random, in every way of games.MOVES, and late."""

    class Mover(base):  # type: ignore[misc]
        asked: list[bytes] = []  # noqa: RUF012 — of all: true words about something else

        def answer(self, query: bytes) -> Any:
            sent = type(super().answer(query)[0])
            move = rng.choice(MOVES) if rng.random() < odds else "facts"
            self.asked.append(query)
            data = message(self.run, query, move, rng, self.asked[-20:])
            delay = rng.randrange(9000) if rng.random() < slow else rng.choice([0, 5])
            again = [sent(message(self.run, query, rng.choice(MOVES), rng, self.asked[-20:]))]
            return [sent(data, delay)] + (again if rng.random() < odds / 4 else [])

    return Mover


def _seats(world: World, rng: random.Random) -> list[Seat]:
    k = rng.choice([2, 2, 2, 3, 3, 4, 5])
    chosen = rng.sample(KEYS, k)
    faulty = _faulty(rng, rng.choice([0.0, 0.0, 0.05, 0.2]))
    seats = [Seat(Member(world.honest, chosen[0]), True, world.provider, faulty=faulty)]
    if k > 2 and rng.random() < 0.2:
        seats.append(Seat(Member(world.honest, chosen[1]), True, world.provider, faulty=faulty))
    lie = rng.choice(world.lies)
    for key in chosen[len(seats) :]:
        if rng.random() < 0.5:
            lie = rng.choice(world.lies)
        seats.append(_liar(world, rng, lie, key))
    rng.shuffle(seats)
    return seats


def _liar(world: World, rng: random.Random, lie: Facts, key: Any) -> Seat:
    if rng.random() < 0.3:
        attack = rng.choice(world.attacks)
        facts = world.honest if attack.claim == "true" else lie
        variant = rng.choice(attack.variants)
        return Seat(Member(facts, key), False, attack.provider, variant)
    odds, slow = rng.choice([0.0, 0.02, 0.1, 0.3]), rng.choice([0.0, 0.0, 0.02, 0.1])
    mover = random_mover(world.provider, rng, odds, slow)
    facts = world.honest if rng.random() < 0.1 else lie
    return Seat(Member(facts, key), False, mover)


def _faulty(rng: random.Random, odds: float) -> Callable[[], int]:
    return lambda: rng.randrange(1, 60) if rng.random() < odds else 0


def _crash(rng: random.Random, odds: float) -> Callable[[], int]:
    return lambda: rng.choice([1, 2]) if rng.random() < odds else 0


def play_one(world: World, rng: random.Random) -> Ended:
    """One session, checked."""
    seats = _seats(world, rng)
    rules = make_rules(
        world.job.digest, STEPS, len(seats), rng.choice([2, 5, 20]), nonce=rng.randbytes(32)
    )
    odds = rng.choice([0.0, 0.0, 0.005, 0.03])
    table = Table(
        world.job.terms, rules, seats, MOST_ROUNDS, _crash(rng, odds), rng.choice([0, 0, 1]),
        lambda: rng.randrange(1, 3000),
    )  # fmt: skip
    ended = table.play()
    ended.check(judged=rng.random() < JUDGED)
    return ended


def verify_once() -> None:
    """Verify each signature once in this process: the same one is met again and again."""
    PublicKey.verifies = functools.lru_cache(1 << 12)(PublicKey.verifies)  # type: ignore[method-assign]


def play_many(
    games: int, seed: int, lies: int = 150, tell: Callable[[dict[str, Any]], object] = lambda _: 0
) -> dict[str, Any]:
    """At least so many games, and what they came to. What fails names its session's number."""
    counts: Counter[str] = Counter()
    clauses: Counter[str] = Counter()
    most = 0
    with tempfile.TemporaryDirectory() as scratch:
        job = make_job(Path(scratch) / "job")
        world = World(job, random.Random(seed), lies)
        number = 0
        while counts["games"] < games:
            number += 1
            try:
                ended = play_one(world, random.Random(f"{seed}/{number}"))
            except BaseException:
                print(f"seed {seed}, session {number}", file=sys.stderr, flush=True)
                raise
            session = ended.session
            counts["sessions"] += 1
            counts["games"] += len(session.matches)
            counts["referee_crashes"] += ended.table.crashes
            counts["messages_refused"] += ended.table.refused
            counts["log_entries"] += session.length
            for match in session.matches:
                assert match.ending.outcome == CONVICTED
                most = max(most, match.referee.rounds)
                for conviction in match.referee.verdict.convicted:
                    clauses[conviction.clause] += 1
            result = {
                **counts,
                "seed": seed,
                "false_runs": len(world.lies),
                "honest_convicted": 0,
                "honest_lost": 0,
                "most_rounds": most,
                "clauses": dict(sorted(clauses.items())),
            }
            if number % 500 == 0:
                tell(result)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--games", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    began = time.monotonic()
    verify_once()

    def tell(result: dict[str, Any]) -> str:
        """Write the counts so far: a run that is stopped leaves them."""
        took = round(time.monotonic() - began, 1)
        result |= {"seconds": took, "tallystick": tallystick_version()}
        text = json.dumps({**result, "date": time.strftime("%Y-%m-%d")}, indent=2) + "\n"
        if given.out:
            given.out.write_text(text)
        return text

    print(tell(play_many(given.games, given.seed, tell=tell)), end="")


if __name__ == "__main__":
    main()
