"""The small job of tests/unit/protocol, an honest run of it and false ones."""

from __future__ import annotations

import pytest
from unit.protocol.conftest import PAIRS
from unit.protocol.scenarios import SCENARIOS, liar
from unit.protocol.simulator import Party

from tallystick.job.job import Job
from tallystick.job.recipes import new_job

NAMES = ("another genesis", "another batch", "another learning rate", "another loss in the chain",
         "a wrong product", "another state goes in")  # fmt: skip


@pytest.fixture(scope="session")
def game_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """13 steps committed every 4."""
    path = tmp_path_factory.mktemp("delegation") / "job"
    pairs = {**PAIRS, "lr": "0.0001"}
    return new_job("logreg", path, pairs, steps=13, checkpoint_interval=4, evaluate_every=0)


@pytest.fixture(scope="session")
def honest(game_job: Job) -> Party:
    """An honest run of `game_job`."""
    return Party(game_job)


@pytest.fixture(scope="session")
def lies(game_job: Job) -> list[Party]:
    """Runs with false claims, all different."""
    return [liar(game_job, SCENARIOS[name]) for name in NAMES]
