"""A run with slots of PROGRAM 5.20 has one root, on whatever path, however often it stops."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from outside_models import CASES, SIZE, records

import tallystick
from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.job.job import Job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.options import Options
from tallystick.run.execute.trainer import train_job

STEPS = 100


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A bank with a pointer: rows that move, and a whole number that goes round."""
    made = CASES["bank_with_a_pointer"]()
    data = {k: v.numpy() for k, v in records().items() if k != "t"}
    example = {k: torch.from_numpy(v[:SIZE]) for k, v in data.items()}
    step = tallystick.capture(made.module, made.loss, example, tallystick.SGD(0.1))
    return step.save_job(
        tmp_path_factory.mktemp("bank") / "job", data, steps=STEPS, checkpoint_interval=10
    )


@pytest.fixture(scope="module")
def root(job: Job, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return train_job(job, tmp_path_factory.mktemp("whole") / "run", Options()).run_root


PATHS = [(isa, threads) for isa in _core.supported_isas() for threads in (1, 3)]


@pytest.mark.parametrize(("isa", "threads"), PATHS)
def test_one_root_on_every_path(
    job: Job, root: bytes, isa: str, threads: int, tmp_path: Path
) -> None:
    """Each of these runs stops twice on its way."""
    context = ExecutionContext(threads=threads, isa=isa)
    for stop in (17, 58):
        done = train_job(job, tmp_path / "run", Options(context=context, stop_before=stop))
        assert done.steps == stop
    assert train_job(job, tmp_path / "run", Options(context=context)).run_root == root


def test_an_audit_repeats_it(job: Job, root: bytes, tmp_path: Path) -> None:
    assert train_job(job, tmp_path / "run", Options()).run_root == root
    assert audit_run(tmp_path / "run").accepted
