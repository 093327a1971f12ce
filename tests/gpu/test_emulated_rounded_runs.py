"""A golden run of `rounded/1` on the emulated GPU: the processor's root (NUMERICS 13)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from e2e.golden import ROUNDED_ROOTS, entry, golden_job
from emulated_gpu import emulated_gpu

from tallystick.devices.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job


def test_run_roots(tmp_path: Path) -> None:
    name, contract = "mlp", "rounded/1;b=28"
    job = golden_job(name, tmp_path, contract)
    assert job.steps >= 100, "some leaks show late"
    device = emulated_gpu(seed=28)
    run = train_job(job, tmp_path / "run", Options(ExecutionContext(device=device)))
    assert entry(job, run) == json.loads(ROUNDED_ROOTS.read_text())[f"{name} {contract}"]
    device.driver.check()
    assert device.driver.launched["rounded_decide_lines"] > 100
