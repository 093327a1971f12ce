"""Golden runs under bounded `replay/1`, between the processor and the emulated GPU, both ways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from e2e.golden import golden_job
from e2e.replay_golden import REPLAY_ROOTS, golden_run, replay_entry, replay_golden_job
from emulated_gpu import EmulatedDriver, emulated_gpu
from reference.orders import Nudged

from tallystick.commit.log import Section
from tallystick.contracts.replay.entries import Blocks
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import DigestOnly
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.nvidia import Traffic
from tallystick.products.engines import using
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.directory import RunStore

WORD = 8  # bytes of the word of refusals
CONTROL = 32  # of the words that say whose log it is and count choices


def on(device: Cuda, **options: Any) -> Options:
    return Options(ExecutionContext(device=device), **options)


def same_logs(a: RunSummary, b: RunSummary) -> bool:
    """Whether two runs have the same log files, byte by byte."""
    stores = [RunStore(run.directory) for run in (a, b)]
    steps = stores[0].logged_steps()
    return steps == stores[1].logged_steps() and all(
        stores[0].log_path(step).read_bytes() == stores[1].log_path(step).read_bytes()
        for step in steps
    )


@pytest.mark.parametrize("name", ["logreg", pytest.param("mlp", marks=pytest.mark.long)])
def test_golden_runs_both_ways(name: str, tmp_path: Path) -> None:
    """At least 100 steps: each party's log gives the other one the same root and the same log."""
    job, gpu = replay_golden_job(name, tmp_path), emulated_gpu(seed=len(name))
    assert job.steps >= 100, "some leaks show late"
    with using(Nudged(1)):  # another order alone changes no root of so small a model
        here = train_job(job, tmp_path / "here")
    there = train_job(job, tmp_path / "there", on(gpu))
    assert there.run_root != here.run_root, "nothing to follow"
    for number, run in enumerate((here, there)):
        for context in (ExecutionContext(), ExecutionContext(device=gpu)):
            report = audit_run(run.directory, job, context=context)
            assert report.accepted and not report.findings
            assert report.choices is not None and report.choices[0] > 0
        followed_by = ExecutionContext(device=gpu) if run is here else ExecutionContext()
        follow = Options(followed_by, replay=run.directory)
        followed = train_job(job, tmp_path / f"followed-{number}", follow)
        assert followed.run_root == run.run_root
        assert same_logs(followed, run)
    assert isinstance(gpu.driver, EmulatedDriver)
    gpu.driver.check()
    assert gpu.driver.launched["replay_decide_lines"] > 100


def test_the_golden_run_there(tmp_path: Path) -> None:
    """The processor's golden log, followed; and recorded there, by a product that adds its few
    terms from left to right as the golden engine does."""
    job, gpu = replay_golden_job("mlp", tmp_path), emulated_gpu(seed=3)
    here, golden = golden_run(job, tmp_path / "here"), json.loads(REPLAY_ROOTS.read_text())["mlp"]
    there = train_job(job, tmp_path / "there", on(gpu))
    assert replay_entry(job, here) == replay_entry(job, there) == golden
    assert same_logs(here, there)


def test_a_gpt2_both_ways(tmp_path: Path) -> None:
    job, gpu = golden_job("gpt2", tmp_path, "replay/1;b=30", 0, steps=2), emulated_gpu(seed=2)
    with using(Nudged(2)):
        here = train_job(job, tmp_path / "here")
    there = train_job(job, tmp_path / "there", on(gpu))
    assert there.run_root != here.run_root, "nothing to follow"
    assert audit_run(here.directory, job, context=ExecutionContext(device=gpu)).accepted
    assert audit_run(there.directory, job).accepted
    gpu.driver.check()


def test_a_run_stopped_there_goes_on_here(tmp_path: Path) -> None:
    """Steps repeated after a restart follow the run's own logs, on any device."""
    job, gpu = golden_job("logreg", tmp_path, "replay/1", 0, steps=30), emulated_gpu(seed=4)
    paused = train_job(job, tmp_path / "run", on(gpu, stop_before=17))
    assert not paused.finished
    done = train_job(job, tmp_path / "run", Options(stop_before=23))
    assert not done.finished
    run = train_job(job, tmp_path / "run", on(gpu))
    assert run.finished
    for context in (ExecutionContext(), ExecutionContext(device=gpu)):
        assert audit_run(run.directory, job, context=context).accepted


class Kept(DigestOnly):
    """The log of one step in memory: its digest, and its sections for a follower."""

    def __init__(self, step: int, sections: tuple[Section, ...]) -> None:
        super().__init__(step, sections)
        self.sections: dict[int, Blocks] = {}

    def bounded(self, number: int, section_blocks: Blocks) -> None:
        super().bounded(number, section_blocks)
        self.sections[number] = section_blocks

    def source(self) -> Any:
        """What a follower reads."""
        return SimpleNamespace(bounded=self.sections.__getitem__, close=lambda: None)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return sum(blocks.words.nbytes for blocks in self.sections.values())


@contextmanager
def crossing(gpu: Cuda, expected: Traffic) -> Iterator[None]:
    """Assert what crosses the bus within the block."""
    traffic = gpu.driver.traffic
    before = Traffic(**vars(traffic))
    yield
    found = {name: value - vars(before)[name] for name, value in vars(traffic).items()}
    assert found == vars(expected)


@pytest.mark.parametrize("name", ["mlp", pytest.param("gpt2", marks=pytest.mark.long)])
def test_what_crosses_in_a_step(name: str, tmp_path: Path) -> None:
    """The batch, the scalars and the key; the loss, the metrics, the word of refusals; and the
    entries of the step, once."""
    job, gpu = golden_job(name, tmp_path, "replay/1", 0), emulated_gpu(seed=6)
    sections = LoggedProgram(job.program).sections
    kept = [Kept(step, sections) for step in range(5)]
    recorder = LoggedSteps(job.program, sink=lambda step: kept[step])
    follower = LoggedSteps(job.program, lambda step: kept[step].source())
    context = ExecutionContext(device=gpu)
    trainer, auditor = (
        Engine(job, job.genesis(), context=context, log=log) for log in (recorder, follower)
    )
    inputs = [spec for spec in job.program.inputs if spec.kind != "state"]
    batch = [spec for spec in inputs if spec.kind == "batch"]
    results = [v for n, v in job.program.outputs if n not in job.program.next_state]
    there, back = sum(spec.type.nbytes for spec in inputs), WORD
    back += sum(job.program.type_of(v).nbytes for v in results)
    counts = 2 * sum(section.blocks for section in sections)
    trainer.run()  # binds memory, and computes what does not change from step to step
    auditor.run()
    for log in kept[1:]:  # recorded, then replayed
        made = Traffic(len(batch) + 1, there, len(results) + 1 + 2, back + CONTROL + counts)
        with crossing(gpu, made):
            trainer.run()
            made.to_host_bytes += log.nbytes
        assert log.nbytes > 0
        read = Traffic(
            len(batch) + 1 + 2, there + counts + log.nbytes, len(results) + 1 + 1, back + CONTROL
        )
        with crossing(gpu, read):
            auditor.run()
        assert auditor.root() == trainer.root()
    assert not follower.findings
    assert isinstance(gpu.driver, EmulatedDriver)
    gpu.driver.check()
