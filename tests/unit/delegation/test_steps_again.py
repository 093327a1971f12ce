"""What Sybils cost an honest party: distinct steps that it executes again (PROTOCOL 10.7)."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from unit.delegation.players import REFEREE, Player, Time, play, rules
from unit.protocol.scenarios import SMALL, Drift
from unit.protocol.simulator import Party

from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.arbiter import Arbiter
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.prover.prover import Prover
from tallystick.run.execute.trainer import Options, train_job

STEPS, INTERVAL, KEPT = 120, 10, 6


class Real(Player):
    """A party that answers from its run on disk."""

    def __init__(self, prover: Prover, key: PrivateKey) -> None:
        self.party = prover  # type: ignore[assignment]
        self.key, self.asked = key, 0


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = tmp_path_factory.mktemp("again") / "job"
    return new_job(
        "logreg", path, SMALL, steps=STEPS, checkpoint_interval=INTERVAL, evaluate_every=0
    )


@pytest.fixture(scope="module")
def run(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("again") / "run"
    train_job(job, out, Options(key=PrivateKey(bytes([11]) * 32), keep=KEPT))
    return out


def against(job: Job, run: Path, liars: list[Player]) -> tuple[int, int]:
    """Games and steps executed again of the honest party, which wins."""
    key = PrivateKey(bytes([11]) * 32)
    with Prover(run, key) as prover:
        honest = Real(prover, key)
        time = Time()
        arbiter = Arbiter(job.terms, REFEREE, [], time, rules(job, [honest, *liars]))
        play(arbiter, [honest, *liars], time)
        assert arbiter.session.result is not None
        assert arbiter.session.result.accepted == sha256(prover.commitment)
        own = [m for m in arbiter.session.matches if key.public in [x.key for x in m.members]]
        return len(own), prover.executed_steps


def test_sybils_on_one_false_claim_cost_the_steps_of_one_game(job: Job, run: Path) -> None:
    """Equal queries have kept answers: 31 games execute no more steps than one."""
    false = Party(job, Drift(77))
    games, once = against(job, run, [Player(false, 40)])
    assert games == 1 and once > 0
    games, steps = against(job, run, [Player(false, 40 + i) for i in range(31)])
    assert (games, steps) == (31, once)


def test_sybils_on_many_false_claims_cost_the_steps_of_logarithmic_games(
    job: Job, run: Path
) -> None:
    """At most ⌈log₂(s + 1)⌉ games, and the steps of so many."""
    false = [Player(Party(job, Drift(step)), 40 + step) for step in range(7)]
    single = max(against(job, run, [liar])[1] for liar in false[::3])
    games, steps = against(job, run, false)
    assert games <= math.ceil(math.log2(len(false) + 1))
    assert steps <= games * single
