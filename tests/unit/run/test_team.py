"""Several workers execute a run: the bits of one, whatever fails (docs/adr/0020)."""

from __future__ import annotations

import socket
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from share_samples import make_share_job
from team_threads import root_by, with_team

from tallystick.cli.output import ExitError
from tallystick.cli.train import train
from tallystick.devices.context import ExecutionContext
from tallystick.errors import StorageError, UsageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.repeat import SectionShare
from tallystick.program.runner import NodeError, NodeFaultError
from tallystick.program.validation import StopRule
from tallystick.run.distributed import exchange, worker
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.exchange import Folding, Spreading, bundles
from tallystick.run.distributed.hello import difference, introduction
from tallystick.run.distributed.launch import Workers, train_with, workers_of
from tallystick.run.distributed.messages import (
    FAULT_BYTES,
    fault_from_bytes,
    fault_to_bytes,
    is_faulty,
)
from tallystick.run.distributed.step import DistributedStep
from tallystick.run.distributed.team import Order, TeamState, owners_of
from tallystick.run.distributed.transport import (
    Meeting,
    PeerLostError,
    TransportFaultError,
    WorkerError,
    launched,
)
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore

ONE = ExecutionContext(1)
MLP = {
    "features": "6", "classes": "3", "records": "64", "hidden": "8", "layers": "1",
    "batch_size": "8", "micro_batches": "4", "dropout": "0.25", "clip_norm": "1.0", "ema": "0.9",
}  # fmt: skip
RESNET = {
    "blocks": "1", "width": "2", "bottleneck": "False", "image": "8", "records": "16",
    "classes": "2", "batch_size": "8", "micro_batches": "4",
}  # fmt: skip
GPT2 = {
    "n_layer": "1", "n_head": "2", "n_embd": "16", "block_size": "8", "batch_size": "6",
    "micro_batches": "3", "text_bytes": "4000",
}  # fmt: skip


def made(jobs: Path, recipe: str, settings: dict[str, str], contract: str, **more: str) -> Job:
    path = jobs / "-".join(["team", recipe, contract.partition("/")[0], *more.values()])
    if not (path / "job.json").exists():
        return new_job(
            recipe, path, settings | more, steps=4, checkpoint_interval=2, contract=contract
        )
    from tallystick.job.job_file import load_job

    return load_job(path)


def alone(job: Job, steps: int) -> tuple[list[int], bytes]:
    engine = Engine(job, job.genesis(), context=ONE)
    return [engine.run()[0] for _ in range(steps)], engine.root()


@pytest.mark.parametrize(
    ("recipe", "settings", "contract", "optimizer", "workers"),
    [
        ("mlp", MLP, "ordered/1", "lamb", 2),
        ("mlp", MLP, "rounded/1", "adafactor", 3),
        ("mlp", MLP, "exact/1", "muon", 4),
        ("gpt2", GPT2, "ordered/1", "adamw", 2),
        ("resnet50", RESNET, "ordered/1", "sgd", 3),
    ],
)
def test_any_number_of_workers_makes_the_bits_of_one(
    jobs: Path, recipe: str, settings: dict[str, str], contract: str, optimizer: str, workers: int
) -> None:
    job = made(jobs, recipe, settings, contract, optimizer=optimizer)
    assert root_by(job, workers, 2) == alone(job, 2)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("contract", ["ordered/1", "exact/1;b=15"])
def test_short_batches_of_fewer_micro_batches(tmp_path: Path, workers: int, contract: str) -> None:
    """Epochs of a batch of five micro-batches and one of three (COMMITMENTS 7.7)."""
    job = make_share_job(tmp_path / "job", 5, contract, steps=5, epoch=24)
    entries = job.commitment.timetable.programs
    assert [(p.batch_size, p.micro_batches) for p in entries] == [(15, 5), (9, 3)]
    assert root_by(job, workers, job.steps) == alone(job, job.steps)


def test_a_short_batch_as_a_whole_is_of_one_worker(tmp_path: Path) -> None:
    job = make_share_job(tmp_path / "job", 5, epoch=18)
    with pytest.raises(UsageError, match="computes each batch as a whole"):
        owners_of(job, 2)


def test_each_worker_holds_what_it_needs(jobs: Path) -> None:
    """Moments and averages are with their owners only; every slot is stored, and has one owner."""
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")

    def look(engine: TeamEngine) -> None:
        engine.run()
        state, owners = engine.state, owners_of(job, 2)
        assert isinstance(state, TeamState)
        assert list(state.slots) == list(owners.held_by(0))
        moments = {n for n in owners.types if n.startswith(("opt.m", "opt.v", "ema"))}
        assert moments - owners.held and {owners.slots[n] for n in moments} == {0, 1}
        one = Engine(job, job.genesis(), context=ONE)
        one.run()
        ours = state.tensors()
        assert list(ours) == list(one.state.tensors())
        for name, array in one.state.tensors().items():
            assert array.tobytes() == ours[name].tobytes(), name
        assert state.digests() == one.state.digests()

    with_team(job, 2, look)


def test_operands_that_one_worker_refuses_are_refused_by_all(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is that of one worker, node and all, and the state is as it was."""
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")
    plain = TeamEngine.batch
    bad = {"on": True}

    def batch(self: TeamEngine, step: int) -> dict[str, np.ndarray]:
        found = plain(self, step)
        if self.team.rank == 1 and bad["on"]:
            found["y"] = np.full_like(found["y"], 77)
        return found

    monkeypatch.setattr(TeamEngine, "batch", batch)

    def refused(engine: TeamEngine) -> NodeError:
        before = engine.root()
        with pytest.raises(NodeError) as caught:
            engine.run()
        assert engine.root() == before and engine.step == 0
        bad["on"] = False
        engine.run()  # the workers wait, in step
        assert engine.root() == alone(job, 1)[1]
        return caught.value

    error = with_team(job, 2, refused)
    one = Engine(job, job.genesis(), context=ONE)
    records = one.batch(0)
    records["y"][4:] = 77
    monkeypatch.setattr(one, "batch", lambda step: records)
    with pytest.raises(NodeError) as caught:
        one.run()
    assert (str(error), error.node, error.state_lost) == (
        str(caught.value), caught.value.node, False
    )  # fmt: skip


def test_records_that_one_worker_cannot_read_end_the_step_for_all(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")
    plain = TeamEngine.batch
    bad = {"on": True}

    def batch(self: TeamEngine, step: int) -> dict[str, np.ndarray]:
        if self.team.rank == 1 and bad["on"]:
            raise StorageError("The disk is gone.", "Look at it.")
        return plain(self, step)

    monkeypatch.setattr(TeamEngine, "batch", batch)

    def refused(engine: TeamEngine) -> None:
        with pytest.raises(WorkerError, match=r"Worker 1: The disk is gone\. Look at it\."):
            engine.run()
        bad["on"] = False
        engine.run()
        assert engine.root() == alone(job, 1)[1]

    with_team(job, 2, refused)


@pytest.fixture
def validated(jobs: Path) -> Job:
    """Step 3 is a batch of validation, which has no micro-batches."""
    job = new_job(
        "mlp", jobs / "team-validated", MLP | {"validation": "0.25"}, steps=14, evaluate_every=3,
        stop_rule=StopRule(1, 0), contract="ordered/1", overwrite=True,
    )  # fmt: skip
    assert not job.texts[job.commitment.timetable.at(3).program].section
    return job


def test_a_step_that_each_worker_executes_ends_for_all_and_is_not_repeated(
    validated: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worker 0 has changed its slots when it learns that worker 1 could not."""
    assert root_by(validated, 3, 8) == alone(validated, 8)
    plain = TeamEngine.batch
    asked = []

    def batch(self: TeamEngine, step: int) -> dict[str, np.ndarray]:
        asked.append((self.team.rank, step))
        if (self.team.rank, step) == (1, 3):
            raise StorageError("The disk is gone.", "Look at it.")
        return plain(self, step)

    monkeypatch.setattr(TeamEngine, "batch", batch)

    def refused(engine: TeamEngine) -> None:
        for _ in range(3):
            engine.run()
        engine.team.checks = SimpleNamespace(begin=lambda step: None)  # type: ignore[assignment]
        with pytest.raises(WorkerError, match=r"Worker 1: The disk is gone\."):
            engine.run()
        assert asked.count((0, 3)) == 1

    with_team(validated, 2, refused)


def test_a_step_that_each_worker_executes_says_what_one_of_them_met(
    validated: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused operand is the node's, its worker's state is as it was; too little memory is the
    worker's. Afterwards all wait for the next order."""
    plain = TeamEngine.batch
    left = ["memory", "operand"]

    def batch(self: TeamEngine, step: int) -> dict[str, np.ndarray]:
        found = plain(self, step)
        if (self.team.rank, step) != (1, 3) or not left:
            return found
        if left.pop() == "memory":
            raise MemoryError
        return {**found, "y": np.full_like(found["y"], 77)}

    monkeypatch.setattr(TeamEngine, "batch", batch)

    def refused(engine: TeamEngine) -> None:
        for _ in range(3):
            engine.run()
        with pytest.raises(NodeError) as caught:
            engine.run()
        assert not caught.value.state_lost and "go back" not in caught.value.next_action
        with pytest.raises(WorkerError, match="Worker 1 has too little memory"):
            engine.run()
        assert engine.step == 3

    with_team(validated, 2, refused)


@pytest.mark.parametrize(
    "words", [b"[" * 9000, b"7", b"{", b'{"kind":0,"message":0,"next_action":0,"node":1e999}']
)
def test_words_that_are_none_are_a_fault_of_their_sender(words: bytes) -> None:
    assert isinstance(fault_from_bytes(words, 1), TransportFaultError)


def test_the_longest_words_fit() -> None:
    longest = "\U0001f600" * 1100
    assert (
        len(fault_to_bytes(NodeFaultError(longest, longest, 1 << 62, False), False)) <= FAULT_BYTES
    )


@pytest.mark.parametrize("message", [1, 2])
def test_altered_bytes_are_named_with_their_sender(jobs: Path, message: int) -> None:
    """Before any update: what comes before it is agreed on (LAMB needs norms)."""
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")
    seen = {"count": 99}

    def fault(sender: int, receiver: int, sent: np.ndarray) -> None:
        if (sender, receiver) == (2, 1):
            seen["count"] += 1
            if seen["count"] == message:
                sent[5] ^= 16

    def step(engine: TeamEngine) -> None:
        before = engine.root()
        seen["count"] = 0
        what = {1: "losses and partial sums", 2: "norms"}[message]
        with pytest.raises(WorkerError, match=f"Worker 1: The {what} from worker 2 do not fit"):
            engine.run()
        assert engine.root() == before and engine.step == 0
        engine.run()
        assert engine.root() == alone(job, 1)[1]

    with_team(job, 3, step, fault)


@pytest.mark.parametrize("receiver", [0, 1])
def test_new_tensors_that_arrive_altered_end_the_run(jobs: Path, receiver: int) -> None:
    """Their owners have what they should, so the step stands; worker 1 can do no other. Worker 0,
    which writes slots down, ends at once."""
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")
    seen = {"left": -1, "met": 0}

    def fault(sender: int, to: int, sent: np.ndarray) -> None:
        if (sender, to) == (2, receiver) and sent.nbytes > 8:
            seen["met"] += 1
            if seen["met"] == seen["left"]:
                sent[5] ^= 16

    def count(engine: TeamEngine) -> None:
        seen["met"] = 0
        engine.run()

    with_team(job, 3, count, fault)
    # The last message of a step has the new tensors.
    seen["left"] = seen["met"]

    def step(engine: TeamEngine) -> None:
        seen["met"] = 0
        words = "The new tensors from worker 2 do not fit"
        if receiver == 0:
            with pytest.raises(WorkerError, match=words):
                engine.run()
            return
        engine.run()
        assert engine.root() == alone(job, 1)[1]
        for _ in range(2):  # it stays so
            with pytest.raises(WorkerError, match=f"Worker 1: {words}"):
                engine.run()
        assert engine.root() == alone(job, 1)[1]

    with_team(job, 3, step, fault)


@pytest.mark.parametrize(
    ("place", "name", "intact"),
    [
        (SectionShare, "execute", True),
        (Folding, "parts", True),
        (Folding, "_fold", True),
        (DistributedStep, "_fold_small", True),
        (DistributedStep, "_execute", True),  # norms, in the first phase
        (Spreading, "_parts", False),
    ],
)
def test_what_one_worker_cannot_do_ends_the_step_for_all(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, place: type, name: str, intact: bool
) -> None:
    """No worker waits for a message that never comes; afterwards all are in step."""
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")
    plain, bad = getattr(place, name), {"on": False}

    def poor(self: Any, *given: Any) -> Any:
        if threading.current_thread().name == "worker 1" and bad["on"]:
            raise MemoryError
        return plain(self, *given)

    monkeypatch.setattr(place, name, poor)

    def step(engine: TeamEngine) -> None:
        engine.run()
        before, bad["on"] = engine.root(), True
        with pytest.raises(WorkerError, match=r"Worker 1: Worker 1 has too little memory\."):
            engine.run()
        bad["on"] = False
        assert engine._intact() == intact
        if intact:
            assert engine.root() == before and engine.step == 1
            engine.run()
            assert engine.root() == alone(job, 2)[1]

    with_team(job, 3, step)


def test_tensors_in_many_bundles(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exchange, exchange):
        monkeypatch.setattr(module, "bundles", partial(bundles, most=600))
    job = made(jobs, "gpt2", GPT2, "ordered/1", optimizer="adamw")
    assert root_by(job, 3, 3) == alone(job, 3)


def test_an_altered_verdict_ends_the_team() -> None:
    """Workers that do not know of each other's faults cannot go on together."""
    with pytest.raises(PeerLostError, match=r"Worker 1 .*its verdict arrived altered"):
        is_faulty(np.array([0, 0, 4, 0, 0, 0, 0, 0], np.uint8), 1)


def test_jobs_that_so_many_workers_cannot_execute(jobs: Path, mlp_job: Job) -> None:
    with pytest.raises(UsageError, match=r"each batch as a whole, so 2 workers.*--micro-batches 2"):
        owners_of(mlp_job, 2)
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")
    with pytest.raises(UsageError, match=r"in 4 micro-batches, so 5 workers.*or use at most 4"):
        owners_of(job, 5)
    logged = made(jobs, "mlp", MLP, "replay/1", optimizer="lamb")
    with pytest.raises(UsageError, match="cannot write the rounding logs"):
        owners_of(logged, 2)
    with pytest.raises(UsageError, match="cannot keep node digests"):
        train_with(Workers(2), job, jobs / "nothing", Options(ONE, trace=(0, 1)), None)


def test_who_torchrun_says_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched({}) is None
    given = {"RANK": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    assert launched(given) == (2, 3) and launched(given | {"WORLD_SIZE": "1"}) is None
    with pytest.raises(UsageError, match="not a number"):
        launched(given | {"RANK": "x"})
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert workers_of(None) == 3
    with pytest.raises(UsageError, match="torchrun started 3 workers, but --workers is 2"):
        workers_of(2)


def test_a_worker_that_executes_something_else_is_named(mlp_job: Job, logreg_job: Job) -> None:
    ours = introduction(mlp_job)
    assert difference(ours, dict(ours), 1) is None
    assert "Worker 3" in str(difference(ours, introduction(logreg_job), 3))
    assert "version" in str(difference(ours, ours | {"version of Tallystick": "0"}, 1))
    assert difference(ours, {}, 1) is not None


def test_a_worker_that_cannot_begin_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends; worker 0 reads its last words (others.Others)."""

    def refused(*_: object, **__: object) -> None:
        raise StorageError("No room.", "Make some.")

    monkeypatch.setattr(worker, "TeamEngine", refused)
    orders = iter([(Order.LOAD, 0)])
    team = SimpleNamespace(
        next_order=lambda: next(orders), load=lambda step: step, job=None, context=None
    )
    with pytest.raises(StorageError, match="No room"):
        worker.follow(team)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "words"),
    [(Order.LOAD, r"It is at step 0, and has the order to execute step 7:"),
     (Order.STEP, r"It has no state, and has the order to execute step 7:")],
)  # fmt: skip
def test_an_order_out_of_turn_ends_a_worker(
    monkeypatch: pytest.MonkeyPatch, first: Order, words: str
) -> None:
    monkeypatch.setattr(worker, "TeamEngine", lambda *_, **__: SimpleNamespace(step=0))
    orders = iter([(first, 7), (Order.STEP, 7)])
    team = SimpleNamespace(
        next_order=lambda: next(orders), load=lambda step: step, job=None, context=None
    )
    with pytest.raises(WorkerError, match=words):
        worker.follow(team)  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has all of 127.0.0.0/8")
def test_workers_of_one_machine_meet_on_no_network() -> None:
    meeting = Meeting(0, 2, 5)
    socket.create_connection(("127.0.0.1", meeting.port), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", meeting.port), 5)


def test_another_evaluation_is_named(jobs: Path) -> None:
    """It is outside the job digest; which slots all workers hold depends on it."""
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="adamw", validation="0.25")
    other = replace(job, evaluation=None)
    assert other.digest == job.digest
    assert "its evaluation is none" in str(difference(introduction(job), introduction(other), 1))


def test_an_estimate_waits_for_nobody(jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's other workers end at once."""
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")
    given = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    words = [str(job.directory), "--out", str(jobs / "none"), "--estimate", "--timeout", "1"]
    found = CliRunner().invoke(train, words, env=given)
    assert isinstance(found.exception, ExitError) and not found.exception.code, found.exception


def test_processes_and_another_number_of_them_afterwards(jobs: Path, tmp_path: Path) -> None:
    """Two workers pause; one goes on: the root of one alone."""
    job = made(jobs, "mlp", MLP, "ordered/1", optimizer="lamb")
    expected = train_job(job, tmp_path / "one", Options(ONE))
    paused = train_with(Workers(2), job, tmp_path / "run", Options(ONE, stop_before=3), None)
    assert (paused.steps, paused.finished, paused.workers) == (3, False, 2)
    found = train_job(job, tmp_path / "run", Options(ONE))
    assert found.run_root == expected.run_root and found.workers == 1
    sessions = RunStore(tmp_path / "run").journal(job).sessions
    assert [s.get("workers", 1) for s in sessions] == [2, 1]
