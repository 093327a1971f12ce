"""Golden runs on the emulated GPU: the roots that the processor has (NUMERICS 1.8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from e2e.golden import NAMES, ROOTS, entry, golden_job
from emulated_gpu import emulated_gpu

from tallystick.kernels.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job


@pytest.mark.parametrize("name", NAMES)
def test_run_roots(name: str, tmp_path: Path) -> None:
    job = golden_job(name, tmp_path)
    assert job.steps >= 100, "some leaks show late"
    device = emulated_gpu(seed=NAMES.index(name))
    run = train_job(job, tmp_path / "run", Options(ExecutionContext(device=device)))
    assert entry(job, run) == json.loads(ROOTS.read_text())[name]
    device.driver.check()
