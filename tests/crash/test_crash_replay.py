"""A fault at each write of a run that keeps rounding logs; then the same command (DESIGN 7, P9)."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from faults import KilledError, faults
from reference.orders import Nudged, Shuffled

pytest.importorskip("torch", reason="torch is not installed")

from tallystick.errors import StorageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.products.engines import using
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.fsck import fsck

LOGREG = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """3 steps, committed every 2: each kind of write, as few as may be."""
    path = tmp_path_factory.mktemp("crash-replay") / "job"
    return new_job(
        "logreg", path, LOGREG, steps=3, checkpoint_interval=2, contract="replay/1",
        evaluate_every=0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(job: Job, tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    return train_job(job, tmp_path_factory.mktemp("crash-replay-run") / "run")


def _interrupted(job: Job, out: Path, at: int, kind: str, options: Options) -> None:
    with faults(at, kind) as installed:
        try:
            train_job(job, out, options)
        except KilledError:
            assert kind == "kill"
        except StorageError as error:
            assert kind == "full"
            assert "disk is full" in error.message
            assert "Nothing committed is lost" in error.next_action
    assert installed.tripped


@pytest.mark.parametrize(
    ("kind", "stride", "follow"), [("kill", 2, False), ("full", 5, False), ("kill", 7, True)]
)
def test_resume_after_a_fault_at_any_write_gives_the_same_run(
    kind: str, stride: int, follow: bool, job: Job, run: RunSummary, tmp_path: Path,
    is_exhaustive: bool,
) -> None:  # fmt: skip
    stride = stride if is_exhaustive else 3 * stride
    options = Options(replay=run.directory if follow else None, clock=lambda: 0.0)
    with faults(0, "kill") as counted:
        train_job(job, tmp_path / "counting", options)
    with faults(0, "kill") as before:  # the copy of the job: test_crash_every_write.py
        train_job(job, tmp_path / "nothing", replace(options, stop_before=0))
    logs = [path.read_bytes() for path in sorted((run.directory / "logs").iterdir())]
    assert counted.calls > before.calls + 40
    for at in range(before.calls, counted.calls + 1, stride):
        out = tmp_path / f"run-{at}"
        _interrupted(job, out, at, kind, options)
        result = train_job(job, out, options)
        assert result.finished and result.run_root == run.run_root, at
        assert [p.read_bytes() for p in sorted((out / "logs").iterdir())] == logs, at
        report = fsck(out)
        assert report.clean, (at, report.problems)
    assert audit_run(tmp_path / f"run-{before.calls + stride}").accepted


def _wide_job(directory: Path, steps: int) -> Job:
    pairs = {"hidden": "96", "layers": "2", "batch_size": "64", "dropout": "0.1", "records": "512"}
    return new_job(
        "mlp", directory, pairs, steps=steps, checkpoint_interval=10, contract="replay/1",
        evaluate_every=0,
    )  # fmt: skip


def test_a_run_goes_on_with_another_engine_after_each_of_many_kills(tmp_path: Path) -> None:
    """Every start is another machine, whose choices are others; what was done stands."""
    job = _wide_job(tmp_path / "job", 25)
    out = tmp_path / "run"
    draw = random.Random(5)
    for start in range(8):
        with using(Nudged(start)), faults(draw.randrange(30, 160), "kill"):
            try:
                train_job(job, out)
            except KilledError:
                continue
    with using(Shuffled(9)):
        assert train_job(job, out).finished
    assert fsck(out).clean
    report = audit_run(out)
    assert report.accepted and report.choices is not None and report.choices[1] > 0


def test_kill_9_of_a_process(tmp_path: Path) -> None:
    job = _wide_job(tmp_path / "job", 100)
    out = tmp_path / "run"
    command = [
        *(sys.executable, "-m", "tallystick", "train", str(job.directory), "--out", str(out)),
        *("--json", "--quiet", "--threads", "1"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    journal = out / "journal"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if journal.exists() and journal.stat().st_size > 600:
            break
        time.sleep(0.002)
    process.kill()  # nothing, should it have ended
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["finished"] is True
    assert len(list((out / "logs").iterdir())) == 100
    assert fsck(out).clean
    assert audit_run(out, steps=(0, 20)).accepted
