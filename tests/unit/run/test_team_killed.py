"""Workers of one run that are killed: they are named, and nothing is lost (docs/adr/0020)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tallystick.devices.context import ExecutionContext
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.distributed.launch import Workers, train_with
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc"),
]
ONE = ExecutionContext(1)
MLP = {
    "features": "6", "classes": "3", "records": "64", "hidden": "8", "layers": "1",
    "batch_size": "8", "micro_batches": "4", "dropout": "0.25", "clip_norm": "1.0", "ema": "0.9",
}  # fmt: skip


def workers_under(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdigit() and int(words[1]) == pid and words[0] != "Z":
            found.append(int(entry.name))
    return sorted(found)


def begun(job: Job, out: Path, *more: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A run by three processes that has come some way, and two of them."""
    command = [sys.executable, "-m", "tallystick", "train", str(job.directory), "--quiet"]
    command += ["--out", str(out), "--workers", "3", "--threads", "1", *more]
    began = subprocess.Popen(command, stderr=subprocess.PIPE)
    journal = out / "journal"
    while not (journal.exists() and journal.stat().st_size > 4000):
        assert began.poll() is None
        time.sleep(0.05)
    others = workers_under(began.pid)
    assert len(others) == 2
    return began, others


def test_the_run_goes_on_where_a_worker_was_killed(tmp_path: Path) -> None:
    job = new_job("mlp", tmp_path / "job", MLP, steps=1000, checkpoint_interval=20)
    began, others = begun(job, tmp_path / "run", "--retries", "1")
    os.kill(others[0], signal.SIGKILL)
    _, said = began.communicate(timeout=300)
    assert began.returncode == 0, said
    assert b"was killed by SIGKILL" in said and b"0 of 1 retries are left" in said
    sessions = RunStore(tmp_path / "run").journal(job).sessions
    assert [(s["workers"], s.get("ended_by_worker")) for s in sessions] == [(3, 1), (3, None)]
    found = train_job(job, tmp_path / "run")
    assert found.run_root == train_job(job, tmp_path / "one", Options(ONE)).run_root


@pytest.mark.parametrize("who", ["worker", "first"])
def test_a_killed_worker_is_named_and_nothing_is_lost(tmp_path: Path, who: str) -> None:
    job = new_job("mlp", tmp_path / "job", MLP, steps=3000, checkpoint_interval=20)
    began, others = begun(job, tmp_path / "run")
    os.kill(others[1] if who == "worker" else began.pid, signal.SIGKILL)
    _, said = began.communicate(timeout=60)
    if who == "worker":
        assert began.returncode == 2 and b"was killed by SIGKILL" in said
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in others):
        assert time.monotonic() < end, "a worker outlived the first one"
        time.sleep(0.1)
    found = train_with(Workers(2), job, tmp_path / "run", Options(ONE), None)
    assert found.run_root == train_job(job, tmp_path / "one", Options(ONE)).run_root
