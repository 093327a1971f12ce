"""A run, an audit and a game on a device that is not the processor (DESIGN 3: the device seam)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_device import Island, There

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.errors import (
    CannotCheckError,
    RefusedOperandsError,
    UnsupportedOperatorError,
    UsageError,
)
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.state import State
from tallystick.prover.local import play
from tallystick.prover.prover import Prover
from tallystick.prover.states import ScratchStates
from tallystick.run.cheats.override import Override
from tallystick.run.cheats.training import Cheat
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.show.preview import estimate_run
from tallystick.run.store.directory import RunStore

MLP = {"features": "8", "classes": "3", "records": "64", "hidden": "16", "batch_size": "8"}
STEPS = 12


@pytest.fixture(scope="module", params=["ordered/1", "rounded/1"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    directory = tmp_path_factory.mktemp("other-device") / "job"
    contract = str(request.param)
    return new_job("mlp", directory, MLP, steps=STEPS, checkpoint_interval=4, contract=contract)


def test_a_run_there_has_the_root_that_it_has_here(job: Job, tmp_path: Path) -> None:
    here = train_job(job, tmp_path / "here", Options(trace=(5, 7)))
    island = ExecutionContext(device=Island())
    paused = train_job(job, tmp_path / "there", Options(island, trace=(5, 7), stop_before=6))
    assert not paused.finished
    there = train_job(job, tmp_path / "there", Options(island, trace=(5, 7)))
    assert there.run_root == here.run_root
    assert there.losses == here.losses and there.validation == here.validation
    for step in (5, 6):
        stores = [RunStore(tmp_path / name) for name in ("here", "there")]
        mine, theirs = (store.load_trace(job, step) for store in stores)
        assert mine == theirs
    report = audit_run(tmp_path / "here", job, context=ExecutionContext(1, device=Island()))
    assert report.accepted and report.checkpoints_compared == STEPS // 4


def test_what_crosses_in_a_step(job: Job) -> None:
    """The batch, the scalars and the key go there, the loss and the metrics come back."""
    device = Island()
    engine = Engine(job, job.genesis(), context=ExecutionContext(device=device))
    assert device.crossed["bytes written"] == sum(
        t.nbytes for t in job.program.state_types.values()
    )
    assert all(isinstance(slot, There) for slot in engine.state.slots.values())
    engine.run()
    device.crossed.clear()
    engine.run()
    inputs = [spec for spec in job.program.inputs if spec.kind != "state"]
    batch = [spec for spec in inputs if spec.kind == "batch"]
    results = [v for name, v in job.program.outputs if name not in job.program.next_state]
    read = [job.program.type_of(value).nbytes for value in results]
    assert device.crossed == {
        "calls written": len(batch) + 1,  # the scalars and the key go together
        "bytes written": sum(spec.type.nbytes for spec in inputs),
        "calls read": len(read),
        "bytes read": sum(read),
    }
    device.crossed.clear()
    root = engine.root()
    assert device.crossed == {"digests": len(job.program.state_types)}
    here = Engine(job, job.genesis())
    here.run()
    here.run()
    assert here.root() == root


def test_a_state_is_read_only_to_be_stored(job: Job, tmp_path: Path) -> None:
    """Once for a file, and never for its size."""
    device = Island()
    train_job(job, tmp_path / "run", Options(ExecutionContext(device=device), stop_before=0))
    assert device.crossed["bytes written"] > 0 and device.crossed["bytes read"] == 0
    state = job.genesis()
    state.move_to(device)
    scratch = ScratchStates(tmp_path)
    scratch.save(3, state, state.root())
    scratch.close()
    sizes = (type_.nbytes for type_ in job.program.state_types.values())
    assert device.crossed["bytes read"] == sum(sizes)


def test_a_traced_step_reads_no_operand_on_the_host(job: Job) -> None:
    device = Island()
    engine = Engine(job, job.genesis(), context=ExecutionContext(device=device))
    _, _, trace = engine.run(trace=True)
    here = Engine(job, job.genesis()).run(trace=True)[2]
    assert trace is not None and trace == here
    assert device.freed == 1, "the memory of a tapped step is given back"
    assert device.crossed["bytes read"] < 64


class _LastBit(Override):
    """The first parameter's first element has another last bit after step 5."""

    def after(self, step: int, state: object) -> None:
        if step == 5:
            slots = state.slots  # type: ignore[attr-defined]
            slots[min(slots)].reshape(-1).view("u4")[0] ^= 1


def test_a_prover_there_convicts_as_one_here(job: Job, tmp_path: Path) -> None:
    from tallystick.prover.cheating import CheatingProver

    train_job(job, tmp_path / "honest", Options())
    train_job(job, tmp_path / "cheat", Options(maker=Cheat(_LastBit())))
    verdicts = []
    for device in (None, Island()):
        context = ExecutionContext() if device is None else ExecutionContext(device=device)
        with (
            Prover(tmp_path / "honest", context=context) as honest,
            CheatingProver(tmp_path / "cheat", override=_LastBit()) as cheat,
        ):
            verdicts.append(play(job.terms, (honest, cheat)).verdict)
    assert verdicts[0] == verdicts[1]
    assert [c.party for c in verdicts[1].convicted] == [1]


class _Refusing(Island):
    """A device whose driver has a fault: a check kernel sees a bad operand in every step."""

    def _make(self, contract):  # type: ignore[no-untyped-def]
        made = dict(super()._make(contract))

        def refuses(*_: object) -> None:
            raise RefusedOperandsError("tallystick.cross_entropy", "a target is out of range.")

        op = "tallystick.cross_entropy"
        made[op] = replace(made[op], run=refuses)
        return made


def test_a_fault_of_a_device_is_no_step_that_cannot_be_executed(job: Job, tmp_path: Path) -> None:
    """It stops twice at one node, so the processor is asked before *unable* is signed (2.8)."""
    train_job(job, tmp_path / "honest", Options())
    train_job(job, tmp_path / "cheat", Options(maker=Cheat(_LastBit())))
    from tallystick.prover.cheating import CheatingProver

    with (
        Prover(tmp_path / "honest", context=ExecutionContext(device=_Refusing())) as honest,
        CheatingProver(tmp_path / "cheat", override=_LastBit()) as cheat,
        pytest.raises(CannotCheckError, match="did not stop at the same node"),
    ):
        play(job.terms, (honest, cheat))


def test_a_step_with_a_log_is_refused_there(tmp_path: Path) -> None:
    job = new_job("mlp", tmp_path / "job", MLP, steps=2, contract="replay/1")
    with pytest.raises(UsageError, match=r"island.*\n?.*without a log"):
        train_job(job, tmp_path / "run", Options(ExecutionContext(device=Island())))


def test_a_cheat_is_played_on_the_processor_only(job: Job, tmp_path: Path) -> None:
    options = Options(ExecutionContext(device=Island()), maker=Cheat(_LastBit()))
    with pytest.raises(UsageError, match="island"):
        train_job(job, tmp_path / "cheat", options)


class _Bare(Island):
    """A device without two of the kernels that the program needs."""

    def _make(self, contract):  # type: ignore[no-untyped-def]
        made = dict(super()._make(contract))
        del made["aten.addmm"], made["tallystick.cross_entropy"]
        return made


def test_operators_without_a_kernel_there_are_named_together(job: Job) -> None:
    context = ExecutionContext(device=_Bare())
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.addmm, tallystick\.cross_entropy"):
        Engine(job, job.genesis(), context=context)


def test_two_runs_live_in_one_process(job: Job, tmp_path: Path) -> None:
    """Each with its own device, threads and instruction set, at the same time."""
    import threading

    roots: dict[str, bytes] = {}
    contexts = {
        "here": ExecutionContext(2),
        "scalar": ExecutionContext(1, "scalar"),
        "there": ExecutionContext(3, device=Island()),
    }

    def run(name: str) -> None:
        roots[name] = train_job(job, tmp_path / name, Options(contexts[name])).run_root

    threads = [threading.Thread(target=run, args=(name,)) for name in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(roots) == 3 and len(set(roots.values())) == 1
    found = {name: RunStore(tmp_path / name).journal(job).sessions[0] for name in contexts}
    assert {name: s["threads"] for name, s in found.items()} == {"here": 2, "scalar": 1, "there": 3}
    assert found["scalar"]["isa"] == "scalar"


def test_a_state_moves_between_devices(job: Job) -> None:
    state, device = job.genesis(), Island()
    before, root = {n: np.array(a) for n, a in state.slots.items()}, state.root()
    state.move_to(device)
    assert state.root() == root
    tensors = state.tensors()
    assert {n: tensors[n].tobytes() for n in before} == {n: a.tobytes() for n, a in before.items()}


def test_an_estimate_hashes_on_the_threads_of_its_context(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = State.root, []

    def root(self: State) -> bytes:
        seen.append(_core.threads())
        return real(self)

    monkeypatch.setattr(State, "root", root)
    threads = _core.threads() + 1
    found = estimate_run(job, tmp_path, ExecutionContext(threads), keep=1)
    assert seen[-1] == threads == found.threads  # the first loads the initial state
