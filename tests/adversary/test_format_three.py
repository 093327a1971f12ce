"""Lies about a job of format 3: short batches, the order, passes of two programs. Both judges come
to the same end (PROTOCOL 5.6.3, 8.2; COMMITMENTS 7.7)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from adversary.two_judges import disagreements, format_two_pairs, package, text
from format_three import (
    COUNT,
    CYCLE,
    DECISION,
    PASS,
    SHORT,
    SHORT_PASS,
    make_stream_job,
)
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

from tallystick.commit.signing import PrivateKey
from tallystick.commit.stream import SEQUENTIAL, SHUFFLED
from tallystick.job.job import Job
from tallystick.prover.local import play

KEY = PrivateKey(bytes([5]) * 32)


@pytest.fixture(scope="module", params=[SHUFFLED, SEQUENTIAL])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = tmp_path_factory.mktemp("streams") / "job"
    return make_stream_job(path, COUNT, request.param, validates=True, steps=9, interval=CYCLE)


def at(step: int, change: Any) -> Any:
    return lambda found, *rest: change(*rest) if found == step else None


def other_record(batch: dict[str, np.ndarray]) -> None:
    for array in batch.values():
        array[-1] = array[0]


def rotated(batch: dict[str, np.ndarray]) -> None:
    """The same records in another order."""
    for array in batch.values():
        array[...] = np.roll(array, 1, axis=0)


def halved(scalars: dict[str, float]) -> None:
    scalars["lr"] /= 2


LIES: dict[str, tuple[str, dict[str, Any]]] = {
    "another record in a short batch": ("5.6.3", {"batch": at(SHORT, other_record)}),
    "a short batch of the next epoch": ("5.6.3", {"batch": at(CYCLE + SHORT, other_record)}),
    "another record in a whole batch": ("5.6.3", {"batch": at(1, other_record)}),
    "another order in a short batch": ("5.6.3", {"batch": at(SHORT, rotated)}),
    "another order in a whole batch": ("5.6.3", {"batch": at(0, rotated)}),
    "another record in a pass": ("5.6.3", {"batch": at(PASS, other_record)}),
    "the rate of another row in a short batch": ("5.6.4", {"scalars": at(SHORT, halved)}),
    "the first epoch's batches again": (
        "5.6.3",
        {"data_step": lambda step: step % CYCLE if step % CYCLE < 2 else step},
    ),
}


@pytest.mark.parametrize("name", sorted(LIES))
def test_a_lie_is_convicted_by_both_judges(job: Job, name: str, is_exhaustive: bool) -> None:
    """From both seats with --exhaustive, else every other lie from the other seat."""
    clause, hooks = LIES[name]
    honest, cheat = Party(job), Party(job, Lie(**hooks))
    in_sequence = job.commitment.timetable.data[0].order == SEQUENTIAL
    if name == "the first epoch's batches again" and in_sequence:
        assert cheat.run.run_root == honest.run.run_root  # the epochs are alike
        return
    assert cheat.run.run_root != honest.run.run_root
    for seat in (0, 1) if is_exhaustive else (sorted(LIES).index(name) % 2,):
        parties = [honest, honest]
        parties[seat] = cheat
        played = play(job.terms, parties, key=KEY)
        assert [(c.party, c.clause) for c in played.verdict.convicted] == [(seat, clause)]
        data = played.evidence.to_bytes()
        assert package(job, data) == text(job, data) == (False, [("AB"[seat], clause)])


def test_the_steps_are_what_the_lies_say(job: Job) -> None:
    t = job.commitment.timetable
    names = [t.programs[t.at(step).program].name for step in range(CYCLE)]
    assert names == ["step"] * 2 + ["step-short"] + ["validate"] * 2 + [
        "validate-short", "decide",
    ]  # fmt: skip
    assert (names[SHORT_PASS], names[DECISION]) == ("validate-short", "decide")
    held = np.concatenate([t.indices(t.at(step)) for step in range(PASS, DECISION)])
    assert held.tolist() == list(range(7))


def test_both_judges_agree_about_every_lie(job: Job, is_exhaustive: bool) -> None:
    ends, rng = Counter[str](), random.Random(14)
    games = 40 if is_exhaustive else 6
    pairs = format_two_pairs(job, 10, rng, None if is_exhaustive else 2 * games)
    assert not [*disagreements(job, games, pairs, rng, ends)]
    assert len(ends) > 3, "games that end in several ways"
