"""kill -9 of a real process at random moments; the same command ends in the same run root."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import train_job


def _command(job: Path, out: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "tallystick", "train", str(job), "--out", str(out)),
        *("--json", "--quiet", "--threads", "1"),
    ]


def _long_job(directory: Path) -> Job:
    pairs = {"hidden": "96", "layers": "3", "batch_size": "64", "dropout": "0.1", "records": "512"}
    return new_job("mlp", directory, pairs, steps=400, checkpoint_interval=20, evaluate_every=0)


def test_killed_three_times(tmp_path: Path) -> None:
    job = _long_job(tmp_path / "job")
    began = time.monotonic()
    expected = train_job(job, tmp_path / "whole")
    lasted = time.monotonic() - began
    out = tmp_path / "killed"
    rng = random.Random(3)
    kills = 0
    for _ in range(3):
        process = subprocess.Popen(
            _command(job.directory, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        journal = out / "journal"
        size = journal.stat().st_size if journal.exists() else 0
        deadline = time.monotonic() + 60
        # Past start-up, at a moment of its own while the journal grows.
        while time.monotonic() < deadline and process.poll() is None:
            if journal.exists() and journal.stat().st_size > size + 200:
                break
            time.sleep(0.002)
        time.sleep(rng.uniform(0, lasted / 8))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills == 3
    done = subprocess.run(_command(job.directory, out), capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["run_root"] == expected.run_root.hex()
    assert result["finished"] is True


def test_interrupt_stops_cleanly_and_says_so(tmp_path: Path) -> None:
    job = _long_job(tmp_path / "job")
    out = tmp_path / "run"
    process = subprocess.Popen(
        _command(job.directory, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    journal = out / "journal"
    while time.monotonic() < deadline and not (journal.exists() and journal.stat().st_size > 400):
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    assert "same command" in stderr
    stopped = json.loads(stdout)
    assert stopped["finished"] is False
    names = [p.name for p in (out / "checkpoints").iterdir()]
    assert f"step-{stopped['steps']:08d}.safetensors" in names
    done = subprocess.run(_command(job.directory, out), capture_output=True, text=True, check=True)
    resumed = json.loads(done.stdout)
    assert resumed["finished"] is True
    assert resumed["run_root"] == train_job(job, tmp_path / "whole").run_root.hex()


def test_two_trainers_do_not_share_a_run(tmp_path: Path, logreg_job: Job) -> None:
    from tallystick.disk.files import locked

    out = tmp_path / "run"
    train_job(logreg_job, out)
    with locked(out / "lock"):
        done = subprocess.run(
            _command(logreg_job.directory, out), capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    assert "Another trainer" in done.stderr
