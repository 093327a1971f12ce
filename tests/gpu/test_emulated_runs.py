"""Golden runs on the emulated GPU: the roots that the processor has (NUMERICS 1.8)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from e2e.golden import NAMES, ROOTS, entry, golden_job
from emulated_gpu import emulated_gpu

from tallystick.devices.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job

_LONG = ("gpt2", "resnet50")  # of gpt2, the first steps are below
_CASES = [pytest.param(n, marks=[pytest.mark.long] * (n in _LONG)) for n in NAMES]


@pytest.mark.parametrize("name", _CASES)
def test_run_roots(name: str, tmp_path: Path) -> None:
    job = golden_job(name, tmp_path)
    assert job.steps >= 100, "some leaks show late"
    device = emulated_gpu(seed=NAMES.index(name))
    run = train_job(job, tmp_path / "run", Options(ExecutionContext(device=device)))
    assert entry(job, run) == json.loads(ROOTS.read_text())[name]
    device.driver.check()


def test_the_first_steps_of_a_gpt2(tmp_path: Path) -> None:
    job = golden_job("gpt2", tmp_path, steps=5)
    here, gpu = train_job(job, tmp_path / "here"), emulated_gpu(seed=2)
    there = train_job(job, tmp_path / "there", Options(ExecutionContext(device=gpu)))
    assert (there.run_root, there.losses) == (here.run_root, here.losses)
    gpu.driver.check()


def test_two_threads_take_turns_on_one_device(tmp_path: Path) -> None:
    """Its scratch memory and its word of refusals are one: calls of two steps never mix."""
    device = emulated_gpu(seed=9)
    golden = json.loads(ROOTS.read_text())["logreg"]["run_root"]

    job = golden_job("logreg", tmp_path)

    def run(number: int) -> str:
        options = Options(ExecutionContext(device=device))
        return train_job(job, tmp_path / f"run-{number}", options).run_root.hex()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [golden, golden]
