"""Games against liars who say anything, judged by the package and by the judge from the text alone.

    PYTHONPATH=tests python tests/adversary/two_judges.py [--games 2000] [--seed 1]

Both have to come to the same end of each game: who is convicted, and by which clause (PROTOCOL
8.2). Then a bit of the evidence is changed and its hash made anew: both have to refuse the same
files, or come to the same end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from adversary.games import MOVES, Answers, Table, liars, make_job
from adversary.lies import KINDS, Ground
from format_two import make_micro_job
from reference.judge.evidence import judge as by_the_text
from unit.protocol import log_scenarios, validated
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.scenarios import Lie, liar
from unit.protocol.simulator import Party
from unit.protocol.validated import make_validated_job

from tallystick.commit.encoding import sha256
from tallystick.errors import TallystickError
from tallystick.job.job import Job
from tallystick.protocol.evidence import evidence_of
from tallystick.protocol.judge import judge as by_the_package

End = tuple[Any, ...]
REFUSED = ("refused",)
Pair = tuple[Answers, Answers]
WIDE = {"bounded": 6000, "published": 12000}  # several blocks of a log


def package(job: Job, evidence: bytes) -> End:
    """The package's end of a game."""
    try:
        verdict = by_the_package(job.terms, evidence).verdict
    except TallystickError:
        return REFUSED
    return verdict.undecided, sorted(("AB"[c.party], c.clause) for c in verdict.convicted)


def text(job: Job, evidence: bytes) -> End:
    """The end by the text."""
    numbers = range(len(job.commitment.timetable.programs))
    texts = [(job.directory / job.program_file(n)).read_bytes() for n in numbers]
    found = by_the_text((job.directory / "job.json").read_bytes(), texts, evidence)
    if "refused" in found:
        return REFUSED
    return found["undecided"], sorted(found["convicted"])


def plain_pairs(job: Job, more: int, rng: random.Random) -> list[Pair]:
    """The honest party and a liar: every scenario, and so many random lies."""
    party = Party(job)
    honest = Answers(party)
    return [(honest, cheat) for cheat in liars(job, party, rng, more)]


def format_two(where: Path, contract: str) -> list[Job]:
    """Jobs of format 2: validation with a stop, micro-batches."""
    made = [make_validated_job(where / "validated", contract=contract)]
    return [*made, make_micro_job(where / "micro", contract=contract)]


def format_two_pairs(
    job: Job, more: int, rng: random.Random, most: int | None = None
) -> list[Pair]:
    """The honest party and liars about a job of format 2: those of `validated.lies` where it
    validates, every lie of `lies.py` that is about a whole run, so many of the others. `most` takes
    so many of them all: each liar trains, and a few games need few liars."""
    honest = Answers(Party(job))
    run = honest.party.run
    ground = Ground(job, run.final_step, range(run.final_step))
    told = list(KINDS["whole"](ground)) + list(KINDS["parts"](ground))
    told += rng.sample(list(KINDS["lived"](ground)), more)
    makers = [partial(Party, job, Lie(**one.hooks), one.tamper, one.statement) for one in told]
    if job.commitment.stop_on_slot:
        makers += [partial(liar, job, scenario) for scenario in validated.lies().values()]
    if most is not None:
        makers = rng.sample(makers, min(most, len(makers)))
    parties = [make() for make in makers]
    return [(honest, Answers(p)) for p in parties if p.run != run]


def log_pairs(job: Job, form: str, most: int, rng: random.Random) -> list[Pair]:
    """The same with lies about a log, so many of them; the honest party follows a bounded log."""
    bounded = form == "bounded"
    told = [*(log_scenarios.BOUNDED if bounded else log_scenarios.PUBLISHED).values()]
    found = []
    for scenario in rng.sample(told, min(most, len(told))):
        choose = (lambda *_: 0) if bounded else None
        cheat = LogParty(job, log_scenarios.lie(scenario), choose=choose)
        follows = cheat if bounded and scenario.clause is not None else None
        honest = LogParty(job, choose=choose, follows=follows)
        found.append((Answers(honest), Answers(cheat)))
    return found


def played(job: Job, pairs: list[Pair], rng: random.Random) -> bytes | None:
    """Evidence of one game; None of one that ends by silence."""
    arity, seat = rng.choice([2, 5, 20]), rng.randrange(2)
    honest, cheat = rng.choice(pairs)
    table = Table(job, honest, cheat, seat, arity)
    odds = rng.choice([0.0, 0.02, 0.1, 0.3])
    for _ in range(10_000):
        if table.referee.verdict is not None:
            break
        table.honest_answers()
        table.liar_sends(rng.choice(MOVES) if rng.random() < odds else "facts", rng)
        if table.referee.verdict is None and rng.random() < odds / 20:
            table.liar_repeats(rng)
    if table.referee.verdict is None:
        return None
    players = [honest, honest]
    players[seat] = table.liar
    given = (players[0].commitment, players[1].commitment)
    return evidence_of(table.referee, job.digest, arity, given).to_bytes()


def disagreements(
    job: Job, games: int, pairs: list[Pair], rng: random.Random, ends: Counter[str]
) -> Iterator[str]:
    """What the two judges see differently; `ends` counts how the games ended."""
    for number in range(games):
        evidence = played(job, pairs, rng)
        if evidence is None:
            ends["silence"] += 1
            continue
        mine, theirs = text(job, evidence), package(job, evidence)
        ends[json.dumps(theirs)] += 1
        if mine != theirs:
            yield f"game {number}: {mine}, the package {theirs}"
        changed = bytearray(evidence[:-32])
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        sealed = bytes(changed) + sha256(bytes(changed))
        mine, theirs = text(job, sealed), package(job, sealed)
        ends["changed: " + ("refused" if theirs == REFUSED else "judged")] += 1
        if mine != theirs:
            yield f"game {number}, a bit changed: {mine}, the package {theirs}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--games", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, ends, wrong = random.Random(given.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as scratch:
        for job in format_two(Path(scratch) / "two", "ordered/1"):
            pairs = format_two_pairs(job, 60, rng)
            for what in disagreements(job, given.games // 8, pairs, rng, ends):
                wrong += 1
                print(f"{job.directory.name}, {what}", file=sys.stderr)
        for contract in ("ordered/1", "rounded/1;b=27", "bounded", "published"):
            where = Path(scratch) / contract.partition("/")[0]
            if "/" in contract:
                job = make_job(where, contract)
                pairs = plain_pairs(job, 60, rng)
            else:
                job = make_log_job(where, form=contract, wide=WIDE[contract])
                pairs = log_pairs(job, contract, 99, rng)
            for what in disagreements(job, given.games // 4, pairs, rng, ends):
                wrong += 1
                print(f"{contract}, {what}", file=sys.stderr)
    print(json.dumps({"games": given.games, "wrong": wrong, "ends": dict(ends)}, indent=2))
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
