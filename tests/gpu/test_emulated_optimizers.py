"""Composed updates on the emulated GPU: the processor's roots (PROGRAM 8, NUMERICS 1.8)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from emulated_gpu import emulated_gpu

from tallystick.devices.context import ExecutionContext
from tallystick.job.recipes import new_job
from tallystick.job.recipes.settings import NAMES
from tallystick.run.execute.trainer import Options, train_job

SETTINGS = {
    "features": "6", "hidden": "10", "layers": "1", "records": "32", "batch_size": "4",
    "ema": "0.9", "clip_value": "0.5", "clip_norm": "1.0", "weight_decay": "0.01",
}  # fmt: skip


@pytest.mark.parametrize("optimizer", NAMES)
def test_one_root(optimizer: str, tmp_path: Path) -> None:
    given = {**SETTINGS, "optimizer": optimizer}
    job = new_job("mlp", tmp_path / "job", given, steps=5, checkpoint_interval=5)
    device = emulated_gpu(seed=NAMES.index(optimizer))
    run = train_job(job, tmp_path / "gpu", Options(ExecutionContext(device=device)))
    assert run.run_root == train_job(job, tmp_path / "cpu").run_root
    device.driver.check()
