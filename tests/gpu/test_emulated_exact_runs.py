"""Golden runs of `exact/1` on the emulated GPU: the processor's roots (NUMERICS 17).

By default two of the mlp, of the narrowest and of the widest integers; all with --exhaustive
(docs/proofs/gpu.md has the figures seen).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from e2e.golden import EXACT, EXACT_ROOTS, EXACT_STEPS, entry, golden_job
from emulated_gpu import emulated_gpu

from tallystick.devices.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job

_BY_DEFAULT = {("mlp", "exact/1;b=8"), ("mlp", "exact/1;b=22")}


@pytest.mark.parametrize(("name", "contract"), EXACT)
def test_run_roots(name: str, contract: str, tmp_path: Path, is_exhaustive: bool) -> None:
    if (name, contract) not in _BY_DEFAULT and not is_exhaustive:
        pytest.skip("slow: run with --exhaustive")
    job = golden_job(name, tmp_path, contract, steps=EXACT_STEPS[name])
    assert job.steps >= 100, "some leaks show late"
    device = emulated_gpu(seed=EXACT.index((name, contract)))
    run = train_job(job, tmp_path / "run", Options(ExecutionContext(device=device)))
    assert entry(job, run) == json.loads(EXACT_ROOTS.read_text())[f"{name} {contract}"]
    device.driver.check()
    digits = [kernel for kernel in device.driver.launched if kernel.startswith("digits_")]
    assert digits and sum(device.driver.launched[kernel] for kernel in digits) > 100
