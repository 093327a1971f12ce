"""A kill at each write while a checkpoint's file is written and the next one is hashed (P9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from faults import KilledError, faults

from tallystick.errors import StorageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.state import State
from tallystick.run.execute.checkpoints import CheckpointWriter
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck
from tallystick.run.store.stored_states import StateFile, StorePolicy

THREAD = "tallystick-checkpoints"
OPTIONS = Options(keep=2, clock=lambda: 0.0)  # of 8 steps: states 4 and 8


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    pairs = {"features": "4", "classes": "2", "records": "16", "batch_size": "2"}
    path = tmp_path_factory.mktemp("beside") / "job"
    return new_job("logreg", path, pairs, steps=8, checkpoint_interval=2, evaluate_every=0)


@pytest.fixture
def overlapping(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The file of a state is written once the next checkpoint is hashed, or the trainer waits for
    it. Returns the steps under way at each beginning."""
    go, seen = threading.Event(), []
    begin, collect, close = CheckpointWriter.begin, CheckpointWriter.collect, CheckpointWriter.close

    def begins(self: CheckpointWriter, step: int, state: State, file: StateFile | None) -> None:
        if file is not None:
            go.clear()
        seen.append((self._filing.step, step) if self._filing is not None else (step,))
        begin(self, step, state, file)

    def digests(self: CheckpointWriter) -> dict[str, bytes]:
        found = honest(self)
        if self._filing is not None and self._filing is not self._open:
            go.set()
        return found

    honest = CheckpointWriter.digests

    def collects(self: CheckpointWriter, wait: bool) -> float | None:
        if wait:
            go.set()
        return collect(self, wait)

    def closes(self: CheckpointWriter) -> None:
        go.set()
        close(self)

    def write(self: StateFile, *rest: object) -> None:
        assert go.wait(20)
        honest_write(self, *rest)  # type: ignore[arg-type]

    honest_write = StateFile.write
    monkeypatch.setattr(StorePolicy, "worth", lambda _: False)
    monkeypatch.setattr(CheckpointWriter, "begin", begins)
    monkeypatch.setattr(CheckpointWriter, "digests", digests)
    monkeypatch.setattr(CheckpointWriter, "collect", collects)
    monkeypatch.setattr(CheckpointWriter, "close", closes)
    monkeypatch.setattr(StateFile, "write", write)
    return seen


@pytest.mark.parametrize("kind", ["kill", "full"])
def test_resume_after_a_fault_with_two_under_way(
    kind: str,
    job: Job,
    tmp_path: Path,
    overlapping: list[tuple[int, ...]],
    is_exhaustive: bool,
) -> None:
    with faults(0, "kill") as counted:
        expected = train_job(job, tmp_path / "whole", OPTIONS)
    assert (4, 6) in overlapping and all(len(steps) <= 2 for steps in overlapping)
    assert RunStore(tmp_path / "whole").stored_steps() == [4, 8]
    stride = {"kill": 3, "full": 9}[kind] // (3 if is_exhaustive else 1)
    for at in range(12, counted.calls + 1, stride):  # before: the job's copy
        out = tmp_path / f"run-{at}"
        with faults(at, kind) as installed, pytest.raises((KilledError, StorageError)):
            train_job(job, out, OPTIONS)
        assert installed.tripped
        check_stored(out)
        result = train_job(job, out, OPTIONS)
        assert (result.run_root, result.losses) == (expected.run_root, expected.losses), at
        assert fsck(out).clean, at
    assert not [t for t in threading.enumerate() if t.name == THREAD]


def check_stored(out: Path) -> None:
    """Every stored state has its root in the journal."""
    store = RunStore(out)
    if store.exists and (out / "journal").exists():
        content = store.journal()
        assert set(store.stored_steps()) <= set(content.roots)
        for step in store.stored_steps():
            store.load_state(store.job(), step, content.roots[step])


KILL = """
import os, signal, sys, threading
from tallystick.disk import files
from tallystick.job.job_file import load_job
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.stored_states import StateFile
from pathlib import Path
at, left = sys.argv[3], [int(sys.argv[4])]
class Killing(files.OsCalls):
    def _end(self, what):
        if threading.current_thread().name == "tallystick-checkpoints" and what == at:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
    def write(self, descriptor, data):
        self._end("write")
        return os.write(descriptor, data)
    def fsync(self, descriptor):
        self._end("fsync")
    def replace(self, source, target):
        self._end("replace")
        os.replace(source, target)
files.OS = Killing()
train_job(load_job(Path(sys.argv[1])), Path(sys.argv[2]), Options(keep=3))
"""


@pytest.mark.parametrize(("what", "which"), [("write", 1), ("fsync", 1), ("replace", 2)])
def test_a_process_killed_in_the_thread_goes_on(
    what: str, which: int, job: Job, tmp_path: Path
) -> None:
    """SIGKILL while the thread writes, flushes or renames a state."""
    out = tmp_path / "run"
    words = [str(job.directory), str(out), what, str(which)]
    done = subprocess.run(
        [sys.executable, "-c", KILL, *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    check_stored(out)
    result = train_job(job, out, Options(keep=3))
    assert result.run_root == train_job(job, tmp_path / "whole").run_root
    assert fsck(out).clean and not list((out / "checkpoints").glob("*.part"))
