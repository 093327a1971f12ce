"""The published method between two real kinds of hardware: this CPU and an NVIDIA GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the published form runs on torch")

import torch
from reference.steps import Steps, under

from tallystick.commit.log import PUBLISHED
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.contracts.replay.stock.stock import Stock
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.run.logs.reader import expected_of, open_log
from tallystick.run.logs.writer import LogDirectory
from tallystick_bench.ovt.parties.unlogged import Float32, Unlogged

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU here"),
]
STEPS = 100
DIGEST = b"\x01" * 32
DEVICES = ("cpu", "cuda")
SETTINGS = {
    "gpt2": {"n_layer": "2", "n_head": "2", "n_embd": "32", "block_size": "16", "batch_size": "4"},
    "mlp": {"features": "16", "classes": "4", "records": "64", "hidden": "32", "batch_size": "16"},
    "resnet50": {"size": "tiny", "batch_size": "4"},
}


@pytest.mark.parametrize("recipe", SETTINGS)
@pytest.mark.parametrize(("first", "second"), (DEVICES, DEVICES[::-1]))
def test_cpu_and_gpu_follow_each_other(
    recipe: str, first: str, second: str, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"pack my box with five dozen liquor jugs. " * 60)
    sources = Sources(text=text) if recipe == "gpt2" else Sources()
    job = new_job(recipe, tmp_path / "job", SETTINGS[recipe], sources, steps=STEPS)
    program = under(job.program, "replay/1;form=published")
    logged = LoggedProgram(program)
    logs = LogDirectory(tmp_path / "logs", DIGEST, logged.sections, PUBLISHED)
    recorder = LoggedSteps(program, sink=logs.writer, stock=Stock(first))
    trainer = Steps(job, program, recorder)
    trainer.run(0, STEPS)
    expected = expected_of(logged, DIGEST)
    follower = LoggedSteps(
        program, lambda step: open_log(tmp_path / "logs", step, expected), stock=Stock(second)
    )
    auditor = Steps(job, program, follower)
    auditor.run(0, STEPS)
    assert auditor.distance(trainer) == 0
    assert auditor.digests == trainer.digests
    assert follower.findings.count == 0


def test_ordinary_training_differs_between_cpu_and_gpu(tmp_path: Path) -> None:
    job = new_job("mlp", tmp_path / "job", SETTINGS["mlp"], Sources(), steps=STEPS)
    ends = []
    for device in DEVICES:
        ends.append(Steps(job, job.program, Unlogged(job.program, Float32(device))))
        ends[-1].run(0, STEPS)
    assert ends[0].distance(ends[1]) > 0
