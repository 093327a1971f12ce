"""Runs of format 2 under faults: a pass, a decision, an early stop, micro-batches (P9)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import KilledError, faults
from format_two import make_micro_job
from unit.protocol.validated import CYCLE, make_validated_job

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.job.job import Job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.fsck import fsck


def _job(kind: str, path: Path) -> Job:
    return make_micro_job(path, 4, steps=9) if kind == "micro" else make_validated_job(path)


@pytest.mark.parametrize("kind", ["validated", "micro"])
def test_resume_after_a_kill_at_any_write_gives_the_same_run(
    kind: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    """In a pass, in a decision, and after the step that stops the run: at every third write, and
    at every one with --exhaustive."""
    job = _job(kind, tmp_path / "job")
    # The last batch of a pass, and its decision. A clock that stands: how many states are worth
    # their time does not depend on the machine's load.
    trace = Options(trace=(CYCLE - 2, CYCLE), clock=lambda: 0.0)
    expected = train_job(job, tmp_path / "whole", trace)
    with faults(0, "kill") as counted:
        train_job(job, tmp_path / "counted", trace)
    assert counted.calls > 60
    for at in range(1, counted.calls + 1, 1 if is_exhaustive else 3):
        out = tmp_path / f"run-{at}"
        with faults(at, "kill") as installed, pytest.raises(KilledError):
            train_job(job, out, trace)
        assert installed.tripped
        result = train_job(job, out, trace)
        assert result.finished, at
        assert (result.run_root, result.losses) == (expected.run_root, expected.losses), at
        assert fsck(out).clean, at
    report = audit_run(tmp_path / "run-31")
    assert report.accepted and report.whole


@pytest.mark.parametrize("kind", ["validated", "micro"])
def test_a_process_killed_at_a_write_goes_on(kind: str, tmp_path: Path) -> None:
    """SIGKILL in the middle of a write, at places over the whole run; the same command ends in the
    same run."""
    job = _job(kind, tmp_path / "job")
    expected = train_job(job, tmp_path / "whole", Options())
    with faults(0, "kill") as counted:
        train_job(job, tmp_path / "counted", Options())
    out = tmp_path / "killed"
    code = (
        "import sys; from killing import Killing; from tallystick.disk import files;"
        "from tallystick.cli.main import run; files.OS = Killing(int(sys.argv[1]));"
        "run(['train', sys.argv[2], '--out', sys.argv[3], '--quiet', '--threads', '1'])"
    )
    here = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": here}
    for at in (counted.calls // 3, counted.calls // 4, counted.calls // 5):
        command = [sys.executable, "-c", code, str(at), str(job.directory), str(out)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stderr
    result = train_job(job, out, Options())
    assert result.finished and result.run_root == expected.run_root
    assert fsck(out).clean


@pytest.mark.parametrize("kind", ["validated", "micro"])
def test_threads_and_paths_change_no_bit(kind: str, tmp_path: Path) -> None:
    job = _job(kind, tmp_path / "job")
    roots = set()
    for isa in _core.supported_isas():
        _core.set_isa(isa)
        for threads in (1, 3):
            run = train_job(job, tmp_path / f"{isa}-{threads}", Options(ExecutionContext(threads)))
            assert run.isa == isa
            roots.add(run.run_root)
    assert len(roots) == 1
