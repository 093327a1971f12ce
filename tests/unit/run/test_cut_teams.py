"""Several workers cut large groups into ranges: the bits of one, and less memory each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from team_threads import root_by, with_team

from tallystick.commit.state import LOG_CHAIN_SLOT, LOSS_CHAIN_SLOT
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.kernels.context import ExecutionContext
from tallystick.program import cutting
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.step import DistributedStep
from tallystick.run.distributed.team import TeamState, owners_of
from tallystick.run.execute.engine import Engine

ONE = ExecutionContext(1)
# Nearly all of it is the first layer: 32 rows of 1030, which are no whole number of leaves.
MLP = {
    "features": "1030", "classes": "3", "records": "64", "hidden": "32", "layers": "1",
    "batch_size": "16", "micro_batches": "8", "dropout": "0.25", "clip_norm": "0.5", "ema": "0.9",
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ranges of one leaf are worth a cut."""
    monkeypatch.setattr(cutting, "LEAST_BYTES", cutting.UNIT * 4)
    yield


def made(jobs: Path, contract: str, **more: str) -> Job:
    path = jobs / "-".join(["cut", contract.partition("/")[0], *more.values()])
    if not (path / "job.json").exists():
        return new_job("mlp", path, MLP | more, steps=6, checkpoint_interval=2, contract=contract)
    return load_job(path)


def alone(job: Job, steps: int) -> tuple[list[int], bytes]:
    engine = Engine(job, job.genesis(), context=ONE)
    return [engine.run()[0] for _ in range(steps)], engine.root()


@pytest.mark.parametrize(
    ("contract", "workers", "settings"),
    [
        ("ordered/1", 2, {"optimizer": "adamw"}),
        ("ordered/1", 8, {"optimizer": "adamw"}),
        ("rounded/1", 3, {"optimizer": "adamw"}),
        ("ordered/1", 3, {"optimizer": "sgd", "momentum": "0.9"}),
        ("rounded/1", 4, {"optimizer": "sgd", "momentum": "0.9"}),
        ("exact/1", 4, {"optimizer": "rmsprop"}),
        ("ordered/1", 4, {"optimizer": "lion"}),
        ("ordered/1", 2, {"optimizer": "adagrad"}),
    ],
)
def test_any_number_of_ranges_makes_the_bits_of_one(
    jobs: Path, contract: str, workers: int, settings: dict[str, str]
) -> None:
    """With clipping and an average; the first layer is cut."""
    job = made(jobs, contract, **settings)
    cut = owners_of(job, workers).cut_slots
    assert {n.partition(".")[0] for n in cut} == {"param", "opt", "ema"}
    assert root_by(job, workers, 3) == alone(job, 3)


@pytest.mark.parametrize("optimizer", ["lamb", "adafactor", "muon"])
def test_groups_that_are_not_elementwise_stay_whole(jobs: Path, optimizer: str) -> None:
    job = made(jobs, "ordered/1", optimizer=optimizer)
    assert not owners_of(job, 3).cut_slots
    assert root_by(job, 3, 1) == alone(job, 1)


def test_each_worker_holds_its_ranges(jobs: Path) -> None:
    job = made(jobs, "ordered/1", optimizer="adamw")
    one = Engine(job, job.genesis(), context=ONE)
    one.run()

    def look(engine: TeamEngine) -> tuple[int, int]:
        engine.run()
        state, step = engine.state, engine._executor_at(0)
        assert isinstance(state, TeamState) and isinstance(step, DistributedStep)
        assert state.digests() == one.state.digests()
        ours = state.tensors()
        for name, array in one.state.tensors().items():
            assert array.tobytes() == ours[name].tobytes(), name
        own = sum(t.nbytes for n, t in state.slots.items() if n not in engine.team.owners.held)
        made = [t for t in step._results.values() if t is not None]
        return own, sum(t.nbytes for t in made)

    moments, gradients = with_team(job, 2, look)
    for workers in (4, 8):
        fewer, smaller = with_team(job, workers, look)
        assert fewer < 1.15 * moments * 2 / workers and smaller < 1.15 * gradients * 2 / workers


def test_a_state_goes_on_with_another_number_of_ranges(jobs: Path) -> None:
    """What four workers store piece by piece, three load."""
    job = made(jobs, "ordered/1", optimizer="adamw")

    def begin(engine: TeamEngine) -> dict[str, np.ndarray]:
        engine.run()
        assert isinstance(engine.state, TeamState)
        return {name: np.array(array) for name, array in engine.state.tensors().items()}

    stored = with_team(job, 4, begin)

    def go_on(engine: TeamEngine) -> bytes:
        def read(name: str, start: int, stop: int) -> np.ndarray:
            return stored[name].reshape(-1)[start:stop]

        losses, logs = (stored[n].tobytes() for n in (LOSS_CHAIN_SLOT, LOG_CHAIN_SLOT))
        state = engine.team.load(1, read, (losses, logs))
        engine = TeamEngine(job, state, 1, engine.context, team=engine.team)
        engine.run()
        return engine.root()

    assert with_team(job, 3, go_on) == alone(job, 2)[1]
