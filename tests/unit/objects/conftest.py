"""What the tests of object stores share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.job.job import Job
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.show.summary import RunSummary


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrors and working directories of a test are its own."""
    monkeypatch.setenv("TALLYSTICK_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def whole_run(jobs: Path, mlp_job: Job) -> RunSummary:
    """A finished run of 12 steps; states after steps 5, 10 and 12 on any machine, traces of 6 and
    7. Never change it: copy it."""
    return train_job(mlp_job, jobs / "whole-run", Options(keep=6, trace=(6, 8)))
