"""A published log recorded and followed on a torch device (replay/published/resident.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the published form runs on torch")

import torch

from tallystick.contracts.replay.entries import pack, unpack
from tallystick.contracts.replay.findings import UNFIT
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import DigestOnly
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.contracts.replay.stock.order import DrawnOrder
from tallystick.contracts.replay.stock.stock import Stock
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.devices.torch import TorchDevice
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job

STEPS = 8
MLP = {"features": "16", "classes": "4", "records": "64", "hidden": "32", "batch_size": "16",
       "dropout": "0.25", "optimizer": "adamw", "clip_norm": "1.0"}  # fmt: skip
GPT2 = {"n_layer": "1", "n_head": "2", "n_embd": "32", "block_size": "8", "batch_size": "2"}


def there() -> ExecutionContext:
    return ExecutionContext(device=TorchDevice("cpu"))


@pytest.fixture(scope="module", params=["mlp", "gpt2"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    home = tmp_path_factory.mktemp("resident")
    (home / "text").write_bytes(b"pack my box with five dozen liquor jugs. " * 60)
    name = str(request.param)
    settings, sources = (MLP, Sources()) if name == "mlp" else (GPT2, Sources(text=home / "text"))
    return new_job(
        name, home / "job", settings, sources, steps=STEPS, checkpoint_interval=4, evaluate_every=0,
        contract="replay/1;form=published;tau=32768",
    )  # fmt: skip


def test_a_run_there_is_accepted_here_and_the_other_way_round(job: Job, tmp_path: Path) -> None:
    far = train_job(job, tmp_path / "there", Options(there()))
    assert audit_run(tmp_path / "there", job).accepted
    near = train_job(job, tmp_path / "here", Options())
    report = audit_run(tmp_path / "here", job, context=there())
    assert report.accepted and report.findings == []
    assert (far.run_root, far.losses) == (near.run_root, near.losses), "the kernels are the same"


class _Kept:
    """A step's log in memory: a sink, and then a source."""

    def __init__(self, step: int, logged: LoggedProgram) -> None:
        self.sections: dict[int, bytes] = {}
        self._digest = DigestOnly(step, logged.sections)
        self.bounded = self._digest.bounded

    def published(self, number: int, packed: bytes | None = None) -> bytes:
        if packed is not None:
            self.sections[number] = packed
            self._digest.published(number, packed)
        return self.sections[number]

    def finish(self) -> bytes:
        return self._digest.finish()

    def discard(self) -> None: ...

    def close(self) -> None: ...


class Party:
    """Steps of a job on a device, every step's log kept."""

    def __init__(
        self, job: Job, context: ExecutionContext, follows: Party | None, stock: Stock | None = None
    ) -> None:
        self.logs: list[_Kept] = []
        self.engine = Engine(
            job, job.genesis(), context=context, log=self._steps(job, follows, stock)
        )

    def _steps(self, job: Job, follows: Party | None, stock: Stock | None) -> LoggedSteps:
        logged = LoggedProgram(job.program)

        def sink(step: int) -> _Kept:
            self.logs.append(_Kept(step, logged))
            return self.logs[-1]

        source = None if follows is None else lambda step: follows.logs[step]
        self.steps = LoggedSteps(job.program, source, sink, stock)  # type: ignore[arg-type]
        return self.steps

    def run(self, steps: int) -> list[bytes]:
        roots = []
        for _ in range(steps):
            self.engine.run()
            roots.append(self.engine.root())
        return roots


def test_another_kinds_log_is_followed_there_as_here(job: Job) -> None:
    """Entries that change values: the follower on the device takes them, and blames no one."""
    trainer = Party(job, DEFAULT, None, Stock(order=DrawnOrder(3)))
    roots = trainer.run(STEPS)
    ends = []
    for context in (DEFAULT, there()):
        auditor = Party(job, context, trainer)
        assert auditor.run(STEPS) == roots
        assert not auditor.steps.findings
        ends.append(auditor)
    here, resident = ends
    assert here.steps.corrections == resident.steps.corrections
    if "batch.tokens" in job.program.input_index:  # means of layer norm are often exact ties
        assert sum(here.steps.corrections.forward) > 0
    assert [log.sections for log in resident.logs] == [log.sections for log in here.logs]


def test_a_forged_entry_is_found_there_as_here(job: Job) -> None:
    trainer = Party(job, DEFAULT, None)
    trainer.run(2)
    logged = LoggedProgram(job.program)
    forged = next(
        n for n, op in enumerate(logged.operators) if op in ("aten.addmm", "aten.native_layer_norm")
    )
    packed = trainer.logs[1].sections[forged]
    entries = unpack(packed, logged.sections[forged].elements)
    entries[:] = np.where(entries == 1, 2 * (np.arange(entries.size) % 2), entries)
    trainer.logs[1].sections[forged] = pack(entries)
    found = []
    for context in (DEFAULT, there()):
        auditor = Party(job, context, trainer)
        roots = auditor.run(2)
        found.append((roots, auditor.steps.findings.kept, auditor.logs[1].sections))
    assert found[0] == found[1]
    assert any(finding.kind == UNFIT for finding in found[0][1])


def test_a_missing_log_is_recorded_there_as_here(job: Job) -> None:
    trainer = Party(job, DEFAULT, None)
    roots = trainer.run(2)

    class Broken:
        def published(self, number: int) -> bytes:
            from tallystick.contracts.replay.findings import LogCorruptError

            raise LogCorruptError("missing", "it is gone", 1)

        def close(self) -> None: ...

    trainer.logs[1] = Broken()  # type: ignore[call-overload]
    kept = []
    for context in (DEFAULT, there()):
        auditor = Party(job, context, trainer)
        assert auditor.run(2) == roots
        kept.append((auditor.logs[1].sections, auditor.steps.findings.count))
    assert kept[0] == kept[1]
    assert kept[0][1] > 0


class _Counting(TorchDevice):
    """Counts the calls that bring bytes to the host."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.read = 0

    def host(self, tensor: Tensor) -> np.ndarray:
        self.read += tensor.numel() * tensor.element_size()
        return super().host(tensor)


def test_a_recorded_step_brings_home_its_entries_alone(job: Job) -> None:
    device = _Counting()
    trainer = Party(job, ExecutionContext(device=device), None)
    trainer.engine.run()
    device.read = 0
    trainer.engine.run()
    entries = sum(len(data) for data in trainer.logs[1].sections.values())
    results = [v for name, v in job.program.outputs if name not in job.program.next_state]
    outputs = sum(job.program.type_of(v).nbytes for v in results)
    assert device.read == entries + outputs


def test_bounded_logs_stay_on_the_processor(tmp_path: Path) -> None:
    job = new_job("mlp", tmp_path / "job", MLP, steps=2, contract="replay/1")
    with pytest.raises(UsageError, match="torch:cpu"):
        train_job(job, tmp_path / "run", Options(there()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU here")
def test_a_run_on_a_gpu_is_accepted_here(job: Job, tmp_path: Path) -> None:
    cuda = ExecutionContext(device=TorchDevice("cuda"))
    train_job(job, tmp_path / "there", Options(cuda))
    assert audit_run(tmp_path / "there", job).accepted
    train_job(job, tmp_path / "here", Options())
    assert audit_run(tmp_path / "here", job, context=cuda).accepted
