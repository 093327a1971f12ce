"""Several workers cut large groups into ranges: the bits of one, and less memory each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from team_threads import root_by, with_team

from tallystick.commit.state import LOG_CHAIN_SLOT, LOSS_CHAIN_SLOT
from tallystick.devices.context import ExecutionContext
from tallystick.errors import CounterpartyError, StorageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.program import cutting
from tallystick.run.distributed import exchange, slots
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.exchange import Norms, bundles
from tallystick.run.distributed.launch import Workers, train_with
from tallystick.run.distributed.step import DistributedStep
from tallystick.run.distributed.team import Team, TeamState, owners_of
from tallystick.run.distributed.transport import WorkerError
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job

ONE, LONG = ExecutionContext(1), pytest.mark.long
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
        ("exact/1", 4, {"optimizer": "rmsprop"}),
        pytest.param("rounded/1", 4, {"optimizer": "sgd", "momentum": "0.9"}, marks=LONG),
        pytest.param("ordered/1", 4, {"optimizer": "lion"}, marks=LONG),
        pytest.param("ordered/1", 2, {"optimizer": "adagrad"}, marks=LONG),
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


@pytest.mark.parametrize(
    "optimizer", ["lamb", pytest.param("adafactor", marks=LONG), pytest.param("muon", marks=LONG)]
)
def test_groups_that_are_not_elementwise_stay_whole(jobs: Path, optimizer: str) -> None:
    job = made(jobs, "ordered/1", optimizer=optimizer)
    assert not owners_of(job, 3).cut_slots


def test_each_worker_holds_its_ranges(jobs: Path) -> None:
    job = made(jobs, "ordered/1", optimizer="adamw")
    one = Engine(job, job.genesis(), context=ONE)
    one.run()

    def look(engine: TeamEngine) -> tuple[int, int]:
        engine.run()
        state, step = engine.state, engine._runner_at(0)
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


def test_a_state_that_is_not_finite(jobs: Path) -> None:
    """Infinities and NaNs, through norms too, are those of one worker."""
    job = made(jobs, "ordered/1", optimizer="sgd", lr="1e30")
    bits, root = root_by(job, 3, 4)
    assert (bits, root) == alone(job, 4)
    assert np.isnan(np.array(bits[-1:], np.uint32).view(np.float32)).all()


def test_bundles_smaller_than_ranges(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exchange, slots):
        monkeypatch.setattr(module, "bundles", partial(bundles, most=3000))
    job = made(jobs, "ordered/1", optimizer="adamw")
    one = Engine(job, job.genesis(), context=ONE)
    one.run()

    def look(engine: TeamEngine) -> None:
        engine.run()
        pieces = list(engine.state.pieces("opt.m.0.weight"))
        assert len(pieces) > 40 and all(piece.nbytes <= 3000 for piece in pieces)
        assert np.concatenate(pieces).tobytes() == one.state.tensor("opt.m.0.weight").tobytes()
        assert engine.root() == one.root()

    with_team(job, 3, look)


@pytest.mark.parametrize("sender", [0, 2])
def test_values_of_blocks_that_arrive_altered_are_named_before_any_update(
    jobs: Path, sender: int
) -> None:
    job = made(jobs, "ordered/1", optimizer="adamw")
    seen = {"count": 0, "at": -1}

    def fault(source: int, to: int, sent: np.ndarray) -> None:
        if (source, to) == (sender, 1):
            seen["count"] += 1
            if seen["count"] == seen["at"]:
                sent[5] ^= 16

    def step(engine: TeamEngine) -> None:
        before = engine.root()
        # Worker 0 sends the order first; then sums, then norms.
        seen.update(count=0, at=3 if sender == 0 else 2)
        words = f"Worker 1: The norms from worker {sender} do not fit"
        with pytest.raises(WorkerError, match=words):
            engine.run()
        assert engine.root() == before and engine.step == 0
        engine.run()
        assert engine.root() == alone(job, 1)[1]

    with_team(job, 3, step, fault)


@pytest.mark.parametrize("name", ["own", "take"])
def test_what_one_worker_cannot_do_for_a_norm_ends_the_step_for_all(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    job = made(jobs, "ordered/1", optimizer="adamw")
    plain, bad = getattr(Norms, name), {"on": False}

    def poor(self: Norms, *given: Any) -> Any:
        if self.rank == 1 and bad["on"]:
            raise MemoryError
        return plain(self, *given)

    monkeypatch.setattr(Norms, name, poor)

    def step(engine: TeamEngine) -> None:
        before, bad["on"] = engine.root(), True
        with pytest.raises(WorkerError, match=r"Worker 1: Worker 1 has too little memory\."):
            engine.run()
        bad["on"] = False
        assert engine.root() == before
        engine.run()
        assert engine.root() == alone(job, 1)[1]

    with_team(job, 3, step)


def test_a_file_that_breaks_off_ends_the_loading_for_all(jobs: Path) -> None:
    job = made(jobs, "ordered/1", optimizer="adamw")
    state = {name: np.array(array) for name, array in job.genesis().tensors().items()}
    bad = {"on": True}

    def read(name: str, start: int, stop: int) -> np.ndarray:
        if bad["on"] and name == "opt.m.0.weight" and start:
            raise StorageError("The disk is gone.", "Look at it.")
        return state[name].reshape(-1)[start:stop]

    def load(engine: TeamEngine) -> None:
        chains = (engine.state.loss_chain, engine.state.log_chain)
        with pytest.raises(StorageError, match="The disk is gone"):
            engine.team.load(0, read, chains)
        bad["on"] = False
        assert engine.team.load(0, read, chains).root() == job.commitment.genesis_root

    with_team(job, 3, load)


def test_a_value_that_no_honest_party_writes_is_named_with_its_place(jobs: Path) -> None:
    job = made(jobs, "ordered/1", optimizer="adamw")
    state = {name: np.array(array) for name, array in job.genesis().tensors().items()}
    state["opt.m.0.weight"].reshape(-1).view(np.uint32)[20_000] = 0x7FC00001

    def load(engine: TeamEngine) -> None:
        with pytest.raises(CounterpartyError, match=r"opt\.m\.0\.weight.* at element 20000"):
            engine.team.load(0, lambda n, a, b: state[n].reshape(-1)[a:b], (b"0" * 32, b"1" * 32))

    with_team(job, 3, load)


def test_who_stops_taking_a_slot_leaves_the_workers_in_step(jobs: Path) -> None:
    """As where the disk is full in the middle of a checkpoint."""
    job = made(jobs, "ordered/1", optimizer="adamw")

    def look(engine: TeamEngine) -> None:
        for _ in engine.state.pieces("opt.m.0.weight"):
            break
        else:
            raise AssertionError
        engine.run()
        assert engine.root() == alone(job, 1)[1]

    with_team(job, 3, look)


def test_workers_that_check_each_other_cut_nothing(jobs: Path) -> None:
    """A receiver of a range could not compare it with the digest that its sender signed."""
    job = made(jobs, "ordered/1", optimizer="adamw")
    transport = SimpleNamespace(size=3, rank=0)
    for checks in (None, SimpleNamespace()):
        team = Team(job, transport, ONE, checks)  # type: ignore[arg-type]
        assert bool(team.owners.cut_slots) == (checks is None)


# A model that is nearly all one matrix of 132,000 elements: each of eight workers has a range of
# more than LEAST_BYTES of it.
LARGE = MLP | {"features": "4125", "records": "32", "batch_size": "8"}


def large(path: Path, contract: str = "ordered/1", steps: int = 100, **settings: str) -> Job:
    return new_job("mlp", path, LARGE | settings, steps=steps, checkpoint_interval=20,
                   contract=contract)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_hundred_steps_with_any_number_of_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contract: str, optimizer: str
) -> None:
    """Ranges as large as they are without a test."""
    monkeypatch.undo()
    momentum = {"momentum": "0.9"} if optimizer == "sgd" else {}
    job = large(tmp_path / "job", contract, optimizer=optimizer, **momentum)
    expected = alone(job, 100)
    for workers in (2, 3, 4, 8):
        assert owners_of(job, workers).cut_slots
        assert root_by(job, workers, 100) == expected, workers


@pytest.mark.long
@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1"])
def test_processes_that_become_fewer_and_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contract: str
) -> None:
    monkeypatch.undo()
    job, run = large(tmp_path / "job", contract, optimizer="adamw"), tmp_path / "run"
    expected = train_job(job, tmp_path / "one", Options(ONE)).run_root
    for workers, stop in ((4, 33), (2, 67)):
        options = Options(ONE, stop_before=stop)
        assert not train_with(Workers(workers), job, run, options, None).finished
    assert train_with(Workers(8), job, run, Options(ONE), None).run_root == expected


@pytest.mark.long
def test_a_run_that_stops_for_its_loss_stops_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    job = large(tmp_path / "job", steps=30, optimizer="sgd", lr="1e30")
    one = train_job(job, tmp_path / "one", Options(ONE))
    found = train_with(Workers(2), job, tmp_path / "two", Options(ONE), None)
    assert (found.run_root, found.steps) == (one.run_root, one.steps) and one.steps < 30
