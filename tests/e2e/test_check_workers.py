"""Runs whose workers check each other's shares (docs/adr/0024), in processes of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from share_samples import make_share_job

from tallystick.errors import MachineFaultError, UsageError
from tallystick.job.job import Job
from tallystick.prover import lying_worker, shares
from tallystick.run.distributed.false_share import WorkerConvictedError
from tallystick.run.distributed.launch import train_by
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.directory import RunStore

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from tallystick.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def without_torch(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command where torch cannot be imported."""
    command = [sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_share_job(tmp_path_factory.mktemp("checks") / "job", 6)


@pytest.fixture(scope="module")
def one(job: Job) -> RunSummary:
    return train_job(job, job.directory.parent / "one")


def lied(job: Job, out: Path, workers: int, fraction: float = 1.0, **lie: Any) -> RunSummary:
    checking = lying_worker.checking_of(fraction, job.directory, out, lie)
    return train_by(workers, job, out, Options(), None, checking=checking)


def test_a_false_gradient_is_convicted(job: Job, tmp_path: Path) -> None:
    """The worker is named before the update, and `judge` confirms it without torch."""
    out = tmp_path / "run"
    with pytest.raises(WorkerConvictedError, match=r"Convicted: worker 1 .*phase 3, case 3") as why:
        lied(job, out, 2, rank=1, kind="false-gradient", step=3, part=4)
    assert why.value.exit_code == 1 and f"train {job.directory} --out {out}`" in str(why.value)
    assert len(RunStore(out).journal(job).losses) == 3
    evidence = tmp_path / "run-false-share-step-3"
    judged = without_torch("judge", evidence / "evidence", "--job", evidence / "job", "--json")
    assert judged.returncode == 1, judged.stderr
    told = json.loads(judged.stdout)
    (convicted,) = told["convicted"]
    assert f"worker 1 (key {convicted['signer'][:16]})" in str(why.value)


@pytest.mark.long
def test_a_stopped_run_goes_on(job: Job, one: RunSummary, tmp_path: Path) -> None:
    """With checks, by honest workers: the root is that of one worker."""
    out = tmp_path / "run"
    with pytest.raises(WorkerConvictedError):
        lied(job, out, 2, rank=1, kind="false-bytes", step=3, part=4)
    checking = shares.checking_of(0.5, job.directory, out)
    again = train_by(2, job, out, Options(), None, checking=checking)
    assert again.run_root == one.run_root


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("kind", ["false-gradient", "false-bytes"])
def test_every_lie_is_convicted(job: Job, tmp_path: Path, kind: str, workers: int) -> None:
    for step, part in ((0, 5), (4, 3)):
        out = tmp_path / f"run-{step}"
        owner = next(r for r in range(workers) if part < (r + 1) * 6 // workers)
        with pytest.raises(WorkerConvictedError, match=f"Convicted: worker {owner} "):
            lied(job, out, workers, rank=owner, kind=kind, step=step, part=part)


@pytest.mark.long
def test_a_false_check_convicts_the_one_who_checked(job: Job, tmp_path: Path) -> None:
    """Of two workers the other one always checks; of more the draw decides which."""
    with pytest.raises(WorkerConvictedError, match=r"Convicted: worker 1 \(key \w+\), in"):
        lied(job, tmp_path / "run", 2, rank=1, kind="false-check", step=1)


@pytest.mark.long
def test_bytes_that_are_not_signed_name_their_sender(
    job: Job, one: RunSummary, tmp_path: Path
) -> None:
    """They are asked for once more. Then their worker is named, and nobody is convicted."""
    lie = {"rank": 1, "kind": "other-bytes", "step": 2, "part": 3}
    with pytest.raises(MachineFaultError, match="bytes that worker 1 sent in step 2"):
        lied(job, tmp_path / "run", 3, 0.001, **lie)
    assert not list(tmp_path.glob("*false-share*"))
    assert lied(job, tmp_path / "once", 3, 0.001, times=1, **lie).run_root == one.run_root


def test_what_is_refused(job: Job, tmp_path: Path) -> None:
    for fraction in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(UsageError, match="share of the work"):
            shares.checking_of(fraction, job.directory, tmp_path / "run")
    checking = shares.checking_of(0.5, job.directory, tmp_path / "run")
    with pytest.raises(UsageError, match="One worker alone"):
        train_by(1, job, tmp_path / "run", Options(), None, checking=checking)


@pytest.mark.long
def test_a_cheating_run_of_a_distributed_job(job: Job, tmp_path: Path) -> None:
    """A trainer that cheats as a whole is convicted in phase 3 against a distributed run, by a
    referee where torch cannot be imported."""
    from tallystick.run.cheats.training import declared_cheat
    from tallystick.run.store.declaration import Declaration

    honest, cheat = tmp_path / "honest", tmp_path / "cheat"
    train_by(2, job, honest, Options(), None)
    maker = declared_cheat(job, Declaration("lie-output"))
    train_job(job, cheat, Options(maker=maker))
    evidence = tmp_path / "evidence"
    command = ["dispute", honest, cheat, "--job", job.directory, "--out", evidence, "--json"]
    found = without_torch(*command, "--as-attack", "B")
    assert found.returncode == 1, found.stderr
    told = json.loads(found.stdout)
    assert (told["phase"], told["case"], told["accepted_party"]) == (3, "3", "A")
    judged = without_torch("judge", evidence, "--job", job.directory)
    assert judged.returncode == 1 and "CONVICTED" in judged.stdout
