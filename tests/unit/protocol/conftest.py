"""Jobs of a few KiB for games, and rules for the two operators that the games dispute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from unit.protocol.scenarios import SCENARIOS, liar
from unit.protocol.simulator import Party

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.opening import quantity
from tallystick.opening.dot import dot_chunk
from tallystick.opening.quantity import Local, Quantity, Site
from tallystick.protocol.referee import Referee
from tallystick.prover.prover import Prover
from tallystick.run.execute.trainer import Options, train_job

PAIRS = {"features": "700", "classes": "2", "records": "16", "batch_size": "2"}


def mm_rule(site: Site) -> Quantity:
    """[2, 2] @ [2, n]: one chunk, and as a named intermediate, so that values are asked for."""
    width = site.outputs[0].shape[1]
    row, column = divmod(site.element, width)

    def chunk(source: quantity.Source, _: quantity.Needs) -> object:
        a = source.read(0, np.array([2 * row, 2 * row + 1]))
        b = source.read(1, np.array([column, width + column]))
        return dot_chunk(a, b)

    return Local("element", "f32", lambda _, needs: needs[0], (Local("chunk", "f32", chunk),))


@pytest.fixture(autouse=True)
def rule_of_mm() -> Iterator[None]:
    """The games here dispute aten.mm by a rule whose shape they know."""
    quantity.opening.load()
    before = quantity.opening.table.get("aten.mm")
    quantity.opening.table["aten.mm"] = mm_rule
    yield
    if before is None:
        del quantity.opening.table["aten.mm"]
    else:
        quantity.opening.table["aten.mm"] = before


@pytest.fixture(scope="session")
def game_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """13 steps committed every 4; batch and weight are tensors of three leaves."""
    path = tmp_path_factory.mktemp("game") / "job"
    pairs = {**PAIRS, "lr": "0.0001"}
    return new_job("logreg", path, pairs, steps=13, checkpoint_interval=4, evaluate_every=0)


@pytest.fixture(scope="session", params=[1, 2, 4])
def diverging_job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """An honest run of it ends after step 1, whose loss is NaN; several checkpoint intervals."""
    path = tmp_path_factory.mktemp("diverging") / "job"
    pairs, interval = {**PAIRS, "lr": "1e37"}, request.param
    return new_job("logreg", path, pairs, steps=9, checkpoint_interval=interval, evaluate_every=0)


@pytest.fixture(scope="session")
def honest(game_job: Job) -> Party:
    """An honest run of `game_job`."""
    return Party(game_job)


@pytest.fixture
def cheat(game_job: Job) -> Party:
    """A party with one wrong element of a product."""
    return liar(game_job, SCENARIOS["a wrong product"])


@pytest.fixture
def game(game_job: Job, honest: Party, cheat: Party) -> Referee:
    """A game that has just begun: honest is party 0, cheat party 1."""
    return Referee(game_job.terms, (honest.commitment, cheat.commitment))


@pytest.fixture(scope="session")
def honest_run(game_job: Job, honest: Party, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run on disk that `honest` is in memory."""
    out = tmp_path_factory.mktemp("prover") / "run"
    train_job(game_job, out, Options(key=honest.key))
    return out


@pytest.fixture
def prover(honest_run: Path, honest: Party) -> Iterator[Prover]:
    with Prover(honest_run, honest.key) as made:
        yield made
