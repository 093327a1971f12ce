"""Thousands of games against liars who say anything; the counts go to docs/proofs/games.json.

    PYTHONPATH=tests python tests/adversary/many_games.py [--games 10000] [--seed 1] [--out FILE]

Every game is checked after every message for P1, P2 and P4 (PROTOCOL 7).
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

from adversary.games import MOVES, Answers, Table, liars, make_job
from unit.protocol.simulator import Party

from tallystick.run.store.version import tallystick_version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
        job = make_job(Path(scratch) / "job")
        honest = Party(job)
        facts, cheats = Answers(honest), liars(job, honest, rng, 150)
        for number in range(given.games):
            table = Table(job, facts, rng.choice(cheats), rng.randrange(2), rng.choice([2, 5, 20]))
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
        "liars": len(cheats),
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
