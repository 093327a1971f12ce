"""The matrix: every attack, both seats, k of 2, 3 and 5, in memory; and the crowds of 32 and 64.

    PYTHONPATH=tests python tests/adversary/session_matrix.py [--only NAME] [--out FILE]

A cell is a session with the real arbiter (adversary/sessions.py). Its table checks the bounds of
PROTOCOL 7.2, 10.7 and 11.6 after every step, and at the end that the honest party stands, that its
claim is accepted, and that every conviction's evidence gives the same verdict offline. `make
matrix` runs all cells; the tests run a sample.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adversary.games import STEPS, make_job, random_lie
from adversary.members import Facts, Member, facts_of_party, facts_of_prover
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

from tallystick.commit.checkpoint import checkpoint_steps
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import LEAF_BYTES
from tallystick.errors import UsageError
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.prover.cheating import CheatingProver
from tallystick.prover.prover import Prover
from tallystick.run.cheats.attacks import attack_names
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.unsigned import Declaration

SIZES, SEATS = (2, 3, 5), (0, 1)
OF_LOGS = ("extra-entry", "forged-entry", "impossible-unlogged-value", "log-not-committed")
OF_FORMAT_2 = ("false-fold", "false-stop", "false-validation", "ignored-stop", "other-held-out")
DEPTH = 5  # of the deepest rule of these jobs' operators
MOST_MEASURED = 20  # rounds of a game, at arity 20
ARITY = 20
CHEAT_STEPS = 24


def most_rounds(job: Job, arity: int = ARITY) -> int:
    """The bound of PROTOCOL 7.2 for a job without a log."""
    checkpoints = len(checkpoint_steps(job.steps, job.interval))
    types = [t for node in job.program.nodes for t in node.out_types]
    leaves = max(-(-t.nbytes // LEAF_BYTES) for t in types)
    return (
        10
        + 2 * _log(arity, checkpoints)
        + _log(arity, job.interval)
        + _log(32, len(job.program.nodes))
        + _log(32, leaves)
        + 4 * DEPTH
        + 8
    )


def _log(base: int, value: int) -> int:
    """⌈log_base value⌉."""
    found = 0
    while base**found < value:
        found += 1
    return found


@dataclass(frozen=True)
class Cell:
    """One session of the matrix. `seat` is the liars' in their first game."""

    attack: str
    variant: str
    k: int
    seat: int

    @property
    def row(self) -> str:
        return f"{self.attack} {self.variant}".strip()


# --- attacks on sessions --------------------------------------------------------------------------
class Small:
    """A tiny job, its honest run, and `each` false runs below and above the honest root."""

    def __init__(self, directory: Path, each: int = 12) -> None:
        self.job = make_job(directory / "small")
        honest = Party(self.job)
        self.honest = facts_of_party(honest)
        rng, roots = random.Random(2), {self.honest.run.run_root}
        self.lies: dict[int, list[Facts]] = {0: [], 1: []}
        while min(map(len, self.lies.values())) < each:
            found = facts_of_party(random_lie(self.job, rng))
            lies = self.lies[found.run.run_root > self.honest.run.run_root]
            if found.run.run_root not in roots and len(lies) < each:
                roots.add(found.run.run_root)
                lies.append(found)
        for lies in self.lies.values():
            lies.sort(key=self._rounds, reverse=True)

    def _rounds(self, lie: Facts) -> int:
        """How long a game against this lie is: the first of a list goes through all phases."""
        provider, (a, b) = honest_provider(), keys(2)
        seats = [
            Seat(Member(self.honest, a), True, provider),
            Seat(Member(lie, b), False, provider),
        ]
        table = Table(self.job.terms, make_rules(self.job.digest, STEPS, 2), seats, 99)
        return int(table.play().session.matches[0].referee.rounds)

    @cached_property
    def most(self) -> int:
        return most_rounds(self.job)

    def play(self, cell: Cell) -> Ended:
        """One attack on a session, checked."""
        return self.finish(self.seats(cell))

    def seats(self, cell: Cell) -> list[Seat]:
        """The parties of a cell: some of them play its attack, and one is honest."""
        attack = session_attacks()[cell.attack]
        lies = self.lies[cell.seat]
        made = sorted(keys(cell.k), key=lambda key: key.public.raw)
        honest = Seat(Member(self.honest, made[-1]), True, honest_provider())
        if attack.claim == "true":  # its key comes first, so it plays for the honest claim
            others = [Seat(Member(lies[0], made[1]), False, honest_provider(), "", ("convicted",))]
            false = [lies[0], lies[0], lies[1]][: cell.k - 2]
            others += [
                _of(attack, cell, Member(f, k)) for f, k in zip(false, made[2:], strict=False)
            ]
            first = Seat(Member(self.honest, made[0]), False, attack.provider, cell.variant)
            seats = [honest, *others[: cell.k - 2], first]
        else:
            claims = [lies[0], lies[0], lies[1], lies[0]]
            seats = [honest]
            seats += [_of(attack, cell, Member(claims[i], made[i])) for i in range(cell.k - 1)]
        return seats

    def finish(self, seats: list[Seat], **given: Any) -> Ended:
        """The session of `seats`, checked."""
        rules = make_rules(self.job.digest, STEPS, max(len(seats), 2), ARITY)
        ended = Table(self.job.terms, rules, seats, self.most, **given).play()
        ended.check()
        return ended


def _of(attack: Any, cell: Cell, member: Member) -> Seat:
    return Seat(member, False, attack.provider, cell.variant, attack.ends)


def session_cells() -> Iterator[Cell]:
    """Every attack on sessions, in each variant, seat and size."""
    for name, attack in session_attacks().items():
        for variant in attack.variants:
            for k in SIZES:
                if k == 2 and attack.claim == "true":
                    continue  # the honest claim against itself is no game
                for seat in SEATS:
                    yield Cell(name, variant, k, seat)


# --- cheating runs --------------------------------------------------------------------------------
class Cheats:
    """Cheating runs of attacks/, each under jobs of several seeds: one of them has it at a seat."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._worlds: dict[int, tuple[Job, Facts]] = {}
        self._made: dict[tuple[str, int], Facts | None] = {}

    def world(self, seed: int) -> tuple[Job, Facts]:
        """A job of this seed and its honest run."""
        if seed not in self._worlds:
            path = self.directory / f"cheats-{seed}"
            pairs = {"records": "48", "batch_size": "4", "hidden": "8", "dropout": "0.1"}
            job = new_job(
                "mlp", path / "job", pairs, steps=CHEAT_STEPS, checkpoint_interval=5,
                evaluate_every=0, seed=seed,
            )  # fmt: skip
            train_job(job, path / "honest", Options())
            self._worlds[seed] = job, facts_of_prover(Prover(path / "honest"))
        return self._worlds[seed]

    def facts(self, name: str, seed: int) -> Facts | None:
        """The cheating run `name` under that job; None where the job gives it nothing to do."""
        if (name, seed) not in self._made:
            job, run = self.world(seed)[0], self.directory / f"cheats-{seed}" / name
            try:
                train_job(job, run, Options(maker=declared_cheat(job, Declaration(name))))
                self._made[name, seed] = facts_of_prover(CheatingProver(run))
            except UsageError as error:
                assert "nothing to do" in error.message
                self._made[name, seed] = None
        return self._made[name, seed]

    def play(self, cell: Cell) -> Ended | None:
        """One cheating run in the session: its owner, Sybils of it, and one that throws its game
        for the honest claim. None where no job has the cheat at this seat."""
        for seed in range(8):
            job, honest = self.world(seed)
            lie = self.facts(cell.attack, seed)
            if lie is None:
                return None
            if (lie.run.run_root > honest.run.run_root) == bool(cell.seat):
                return self._finish(cell, job, honest, lie)
        return None

    def _finish(self, cell: Cell, job: Job, honest: Facts, lie: Facts) -> Ended:
        made = sorted(keys(cell.k), key=lambda key: key.public.raw)
        provider, throws = honest_provider(), session_attacks()["throws-the-game"].provider
        seats = [Seat(Member(honest, made[-1]), True, provider)]
        for key in made[1 : cell.k - 1] if cell.k == 5 else made[:-1]:
            seats.append(Seat(Member(lie, key), False, provider, "", ("convicted", "forfeits")))
        if cell.k == 5:
            seats.append(Seat(Member(honest, made[0]), False, throws))
        rules = make_rules(job.digest, CHEAT_STEPS, cell.k, ARITY)
        ended = Table(job.terms, rules, seats, most_rounds(job)).play()
        ended.check()
        return ended


def cheat_cells() -> Iterator[Cell]:
    """Every cheating run of a job of format 1 without a log, each seat and size."""
    for name in attack_names():
        if name not in (*OF_LOGS, *OF_FORMAT_2):
            for k in SIZES:
                for seat in SEATS:
                    yield Cell(name, "", k, seat)


# --- crowds ---------------------------------------------------------------------------------------
def crowd(small: Small, name: str, crash: float = 0.0, sybils: int = 31) -> Ended:
    """One honest party among many: Sybils with `one-claim` or `many-claims`, `throwers` (Sybils
    that sign the honest claim and lose, beside one liar), `idle` (32 liars and 31 idle)."""
    provider, attacks = honest_provider(), session_attacks()
    rng = random.Random(name)
    lies = [*small.lies[0], *small.lies[1]]
    made = keys(64)
    seats = [Seat(Member(small.honest, made[0]), True, provider)]

    def liar(lie: Facts, key: PrivateKey) -> Seat:
        return Seat(Member(lie, key), False, provider, "", ("convicted",))

    if name == "one-claim":
        seats += [liar(lies[0], key) for key in made[1 : sybils + 1]]
    elif name == "many-claims":
        seats += [liar(false_claim(lies, n), key) for n, key in enumerate(made[1 : sybils + 1])]
    elif name == "throwers":
        throws = attacks["throws-the-game"]
        seats += [
            Seat(Member(small.honest, key), False, throws.provider, rng.choice(throws.variants))
            for key in made[1:sybils]
        ]
        seats += [liar(lies[0], made[sybils])]
    else:
        seats += [liar(false_claim(lies, n), key) for n, key in enumerate(made[1:33])]
        silent = attacks["silence"].provider
        idle = ["opening"] * 10 + ["phase-0"] * 21
        for n, (variant, key) in enumerate(zip(idle, made[33:], strict=True)):
            facts = small.honest if n % 2 else lies[n % len(lies)]
            seats.append(Seat(Member(facts, key), False, silent, variant))
    if not crash:
        return small.finish(seats)
    return small.finish(
        seats, crash=lambda: rng.choice([1, 2]) if rng.random() < crash else 0,
        away=lambda: rng.randrange(1, 900),
    )  # fmt: skip


def false_claim(lies: list[Facts], number: int) -> Facts:
    """As many claims as wanted: more final roots over the lies there are."""
    facts = lies[number % len(lies)]
    if number < len(lies):
        return facts
    changed = replace(facts.run, final_state_root=bytes([number]) * 32)
    return Facts(changed, facts.said)


CROWDS = ("one-claim", "many-claims", "throwers", "idle")


# --- the table ------------------------------------------------------------------------------------
def tell(cell: Cell, ended: Ended) -> str:
    """What became of the liars of a cell, in a word or two."""
    liars_ = [seat for seat in ended.table.seats if not seat.honest]
    found = sorted({ended.fate(seat) for seat in liars_})
    return "+".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default="", help="attacks whose name has this in it")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    began, cells, games, rounds, worst, skipped = time.monotonic(), 0, 0, 0, 0.0, 0

    def count(ended: Ended) -> None:
        nonlocal games, rounds, worst
        matches = ended.session.matches
        games += len(matches)
        longest = max((m.referee.rounds for m in matches), default=0)
        rounds = max(rounds, longest)
        assert longest <= MOST_MEASURED, "a game has more rounds than measured before"
        if matches:
            worst = max(worst, ended.table.seconds / len(matches))

    with tempfile.TemporaryDirectory() as scratch:
        small, cheats = Small(Path(scratch)), Cheats(Path(scratch))
        for cell in (*session_cells(), *cheat_cells()):
            if given.only not in cell.attack:
                continue
            ended = (small if cell.attack in session_attacks() else cheats).play(cell)
            where = f"k={cell.k} seat {cell.seat}"
            rows[cell.row][where] = "-" if ended is None else tell(cell, ended)
            cells, skipped = cells + (ended is not None), skipped + (ended is None)
            if ended is not None:
                count(ended)
            if sys.stderr.isatty():
                print(f"\r{cells} cells", end="", file=sys.stderr)
        for name in CROWDS:
            for crash in (0.0, 0.02):
                if given.only in name:
                    ended = crowd(small, name, crash)
                    count(ended)
                    cells += 1
                    rows[f"crowd {name}"]["crashes" if crash else "k"] = (
                        f"{len(ended.table.seats)} parties, {len(ended.session.matches)} games, "
                        f"{ended.session.rounds} rounds, {ended.table.crashes} crashes"
                    )
    _print(rows)
    result = {
        "cells": cells, "without_a_cell": skipped, "games": games, "most_rounds": rounds,
        "referee_seconds_per_game_at_most": round(worst, 3),
        "seconds": round(time.monotonic() - began, 1), "tallystick": tallystick_version(),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    print(json.dumps(result))
    if given.out:
        given.out.write_text(json.dumps({**result, "rows": rows}, indent=2) + "\n")
    return 0


def _print(rows: dict[str, dict[str, str]]) -> None:
    columns = [f"k={k} seat {seat}" for k in SIZES for seat in SEATS]
    print("| attack | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for row, found in rows.items():
        if row.startswith("crowd"):
            print(f"{row}: " + "; ".join(f"{k}: {v}" for k, v in found.items()))
        else:
            print(f"| {row} | " + " | ".join(found.get(c, "") for c in columns) + " |")


if __name__ == "__main__":
    sys.exit(main())
