"""Runs of every optimizer: one root for all threads, instruction sets and interruptions."""

from __future__ import annotations

from pathlib import Path

import pytest

import tallystick
from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.job.recipes import new_job
from tallystick.job.recipes.settings import NAMES
from tallystick.run.execute.trainer import Options, train_job

SETTINGS = {"features": "8", "hidden": "12", "layers": "1", "records": "64", "batch_size": "8"}
MORE = {"ema": "0.9", "clip_value": "0.5", "clip_norm": "1.0", "weight_decay": "0.01"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("optimizer", NAMES)
def test_one_root_on_all_threads_and_paths(optimizer: str, tmp_path: Path) -> None:
    given = {**SETTINGS, **MORE, "optimizer": optimizer, "momentum": "0.9"}
    job = new_job("mlp", tmp_path / "job", given, steps=12, checkpoint_interval=4)
    assert "first step" not in job.about
    roots = set()
    for threads in (1, 3):
        for isa in _core.supported_isas():
            out = tmp_path / f"{isa}-{threads}"
            context = ExecutionContext(threads, isa)
            roots.add(train_job(job, out, Options(context)).run_root)
    whole = tmp_path / "interrupted"
    assert not train_job(job, whole, Options(stop_before=7)).finished
    run = train_job(job, whole)
    assert roots == {run.run_root}
    assert tallystick.audit(whole, job).accepted
