"""Workers that torchrun started, one of them killed (docs/MANY-MACHINES.md)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc"),
]

SETTINGS = {
    "features": "64", "records": "512", "hidden": "256", "layers": "2", "batch_size": "24",
    "micro_batches": "6", "dropout": "0.1",
}  # fmt: skip
STEPS, INTERVAL = 600, 20
LOSS_BYTES = 20  # a record of the journal, at least
# torchrun kills after 30 seconds what has not ended.
BOUND_S = 28.0


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    directory = tmp_path_factory.mktemp("torchrun") / "job"
    return new_job(
        "mlp", directory, SETTINGS, steps=STEPS, checkpoint_interval=INTERVAL, evaluate_every=100
    )


@pytest.fixture(scope="module")
def root(job: Job, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The run root by one worker."""
    return train_job(job, tmp_path_factory.mktemp("one") / "run", Options()).run_root


@contextmanager
def launched(job: Job, run: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """torchrun with three workers of the run, a group of processes that ends with the context."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", *words]
    command += ["-m", "tallystick", "train", str(job.directory), "--out", str(run), "--quiet"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def workers(launcher: int) -> dict[int, int]:
    """The processes of torchrun's workers, by rank."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            names = (entry / "environ").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        ranks = [name[5:] for name in names if name.startswith("RANK=")]
        if int(words[1]) == launcher and words[0] != "Z" and ranks:
            found[int(ranks[0])] = int(entry.name)
    return found


def trained(run: Path, more: int, process: subprocess.Popen[str]) -> int:
    """Wait until the journal has `more` losses more; its length."""
    path, end = run / "journal", time.monotonic() + 120
    before = path.stat().st_size if path.exists() else 0
    while time.monotonic() < end and process.poll() is None:
        if path.exists() and (size := path.stat().st_size) >= before + more * LOSS_BYTES:
            return size
        time.sleep(0.02)
    out, _ = process.communicate(timeout=60)
    pytest.fail(f"the run does not go on:\n{out}")


def ended(said: str, rank: int) -> str:
    """The exit code of a worker in torchrun's report."""
    return re.findall(rf"rank +: {rank} .*\n +exitcode +: (-?\d+)", said)[-1]


def finished(job: Job, run: Path, root: bytes) -> None:
    """The same command goes on to the root of one worker, and the run is whole."""
    with launched(job, run) as process:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
    claim = RunStore(run).journal(job)
    assert claim.run_root == root and fsck(run).clean


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 0)])
def test_killed_workers(job: Job, root: bytes, tmp_path: Path, order: tuple[int, ...]) -> None:
    """A worker is killed, each time another one; the others end soon, and say so once."""
    run = tmp_path / "run"
    for killed in order:
        with launched(job, run) as process:
            at_least = trained(run, 60, process)
            pids = workers(process.pid)
            assert sorted(pids) == [0, 1, 2]
            began = time.monotonic()
            os.kill(pids[killed], signal.SIGKILL)
            out, _ = process.communicate(timeout=120)
            seconds = time.monotonic() - began
        assert process.returncode == 1 and seconds < BOUND_S, (seconds, out)
        assert {ended(out, rank) for rank in range(3) if rank != killed} == {"2"}, out
        assert out.count("ended or fell silent") == 1, out
        assert out.count("the same command goes on") == 1, out
        print(f"\nworker {killed} killed: all ended {seconds:.1f} s later")
        journal = RunStore(run).journal(job)
        assert not journal.finished and (run / "journal").stat().st_size >= at_least
        assert [step for step, _ in journal.checkpoints] == list(
            range(0, len(journal.losses) + 1, INTERVAL)
        )[: len(journal.checkpoints)]
    finished(job, run, root)


def test_torchrun_may_begin_again_by_itself(job: Job, root: bytes, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with launched(job, run, "--max-restarts", "2") as process:
        for killed in (2, 0):
            trained(run, 60, process)
            os.kill(workers(process.pid)[killed], signal.SIGKILL)
            time.sleep(3)  # until torchrun has seen it: the others may write until then
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    journal = RunStore(run).journal(job)
    assert journal.run_root == root and fsck(run).clean
    assert len(journal.sessions) == 3


def test_an_interrupt_pauses_the_run(job: Job, root: bytes, tmp_path: Path) -> None:
    """Ctrl-C in a terminal reaches torchrun and the workers, and torchrun tells them once more."""
    run = tmp_path / "run"
    with launched(job, run) as process:
        trained(run, 60, process)
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=120)
        assert "nothing is lost" in out, out
    journal = RunStore(run).journal(job)
    assert journal.sessions[-1]["end_step"] == len(journal.losses)
    assert len(journal.losses) in RunStore(run).stored_steps()
    finished(job, run, root)
