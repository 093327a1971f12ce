"""Thousands of games against liars who say anything; the counts go to docs/proofs/games.json.

    PYTHONPATH=tests python tests/adversary/many_games.py [--games 10000] [--seed 1] [--out FILE]
    PYTHONPATH=tests python tests/adversary/many_games.py --answers [--games 10000] …

With `--answers` the games are about answers of small models (ANSWERS 1.4): random requests of every
sampler set, under each contract that answers have. Every game is checked after every message for
P1, P2 and P4 (PROTOCOL 7).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from adversary.games import MOST_ROUNDS, MOVES, Answers, Table, liars, lying_answers, make_job
from unit.answers.toy import Toy
from unit.protocol.simulator import Party

from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.numerics.contracts import ORDERED_1

# Requests to the small models, and liars about the answer to each.
REQUESTS, LIARS_EACH = 24, 12
# 10 + log(n) + 4·d of PROTOCOL P4 for their programs, at arity 2: up to 128 nodes, trees of 4.
MOST_ROUNDS_OF_ANSWERS = 10 + 2 + 7 + 4 * 4
DRAWN = {"temperature": 2.0}
ALL = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "repetition": 1.2,
       "presence": 0.3, "frequency": 0.2, "bias": ((2, 0.5), (9, -0.25))}  # fmt: skip


class World:
    """A job, an honest party's facts about it, and liars."""

    def __init__(self, job: Job, honest: Party, cheats: list[Answers], most_rounds: int) -> None:
        self.job, self.facts, self.cheats = job, Answers(honest), cheats
        self.most_rounds = most_rounds


def training(scratch: Path, rng: random.Random) -> list[World]:
    job = make_job(scratch / "job")
    honest = Party(job)
    return [World(job, honest, liars(job, honest, rng, 150), MOST_ROUNDS)]


def answering(scratch: Path, rng: random.Random) -> list[World]:
    found = []
    for number in range(REQUESTS):
        toy = Toy.make(rng.randrange(1000), contract=rng.choice([ORDERED_1, "rounded/1-draft.1"]))
        settings = rng.choice([{}, DRAWN, ALL])
        prompt = tuple(rng.randrange(16) for _ in range(rng.randint(1, 8)))
        request = toy.request(
            prompt, **settings, seed=rng.randrange(1 << 32), max_tokens=rng.randint(1, 4)
        )
        said = toy.answered(request)
        job = said.write(scratch / str(number), toy.text_of(said), toy.held, overwrite=False)
        honest = Party(job)
        cheats = lying_answers(job, honest, rng, LIARS_EACH)
        found.append(World(job, honest, cheats, MOST_ROUNDS_OF_ANSWERS))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", action="store_true", help="about answers, not training")
    parser.add_argument("--games", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    clauses: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    rounds: Counter[int] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        worlds = (answering if given.answers else training)(Path(scratch), rng)
        for number in range(given.games):
            world = rng.choice(worlds)
            liar, seat, arity = rng.choice(world.cheats), rng.randrange(2), rng.choice([2, 5, 20])
            table = Table(world.job, world.facts, liar, seat, arity, world.most_rounds)
            odds = rng.choice([0.0, 0.02, 0.1, 0.3])

            def choose(odds: float = odds) -> str:
                return rng.choice(MOVES) if rng.random() < odds else "facts"

            table.finish(choose, rng)
            verdict = table.referee.verdict
            assert verdict is not None
            clauses[verdict.convicted[0].clause] += 1
            phases[str(verdict.phase)] += 1
            rounds[verdict.rounds] += 1
            if number % 1000 == 999:
                print(f"{number + 1} games", file=sys.stderr, flush=True)
    result = {
        "games": given.games,
        "seed": given.seed,
        "about": "answers" if given.answers else "training",
        "liars": sum(len(world.cheats) for world in worlds),
        "honest_convicted": 0,
        "liar_escaped": 0,
        "clauses": dict(sorted(clauses.items())),
        "phases": dict(sorted(phases.items())),
        "most_rounds": max(rounds),
        "seconds": round(time.monotonic() - began, 1),
        "tallystick": tallystick_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    text = json.dumps(result, indent=2) + "\n"
    if given.out:
        given.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
