"""Golden run roots: any change of any bit of the contract, the programs or the formats shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from golden import NAMES, OLD_RUN, ROOTS, entry, golden_job
from long_runs import some

from tallystick import _core
from tallystick.api import audit
from tallystick.devices.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.fsck import fsck


@pytest.mark.parametrize("name", NAMES)
def test_run_roots_on_every_path(name: str, tmp_path: Path, is_exhaustive: bool) -> None:
    golden = json.loads(ROOTS.read_text())[name]
    job = golden_job(name, tmp_path)
    assert job.steps >= 100, "some leaks show late"
    for number, isa in enumerate(some(_core.supported_isas(), is_exhaustive)):
        _core.set_isa(isa)
        run = train_job(job, tmp_path / f"run-{isa}", Options(ExecutionContext(1 + number % 3)))
        assert run.isa == isa
        assert entry(job, run) == golden, isa


def test_the_old_run_is_still_read_and_repeated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLD_RUN, run)
    assert not fsck(run).problems
    report = audit(run)
    assert report.accepted and report.whole
    assert report.run_root.hex() == json.loads(ROOTS.read_text())["logreg"]["run_root"]
