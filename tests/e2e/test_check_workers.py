"""Runs whose workers check each other's shares (docs/adr/0024), in processes of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from share_samples import make_share_job

from tallystick.cli.output import ExitError
from tallystick.cli.train import train
from tallystick.errors import MachineFaultError, TallystickError, UsageError
from tallystick.job.job import Job
from tallystick.prover import lying_worker, shares
from tallystick.run.distributed.claims import ConvictedWorker, WorkerConvictedError
from tallystick.run.distributed.launch import Checking, Workers, train_by
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
    return train_by(Workers(workers, checking=checking), job, out, Options(), None)


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
    again = train_by(Workers(2, checking=checking), job, out, Options(), None)
    assert again.run_root == one.run_root


LIE = {"rank": 2, "kind": "false-bytes", "step": 3, "part": 4}


def trained(
    job: Job, out: Path, lie: dict[str, Any], *more: str
) -> tuple[int, dict[str, Any], str]:
    """`train --json` by three processes of which one lies: exit code, what it says, its notes."""

    def lying(fraction: float, job: Path, out: Path, called: str = "") -> Checking:
        return lying_worker.checking_of(fraction, job, out, lie)

    arguments = [str(job.directory), "--out", str(out), "--workers", "3", "--threads", "1"]
    arguments += ["--check-workers", "1", "--quiet", "--json", *more]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick.api.training.checking_of", lying)
        found = CliRunner().invoke(train, arguments)
    if isinstance(found.exception, TallystickError):
        return found.exception.exit_code, {}, str(found.exception)
    assert isinstance(found.exception, ExitError), found.exception
    return found.exception.code, json.loads(found.stdout), found.stderr


@pytest.mark.long
def test_the_run_goes_on_by_itself(job: Job, one: RunSummary, tmp_path: Path) -> None:
    """To the root of one worker, with exit code 1, and the evidence that `judge` confirms."""
    code, told, notes = trained(job, tmp_path / "run", LIE, "--on-conviction", "continue")
    assert (code, told["run_root"], told["workers"]) == (1, one.run_root.hex(), 2)
    (convicted,) = told["convicted"]
    assert (convicted["worker"], convicted["workers"], convicted["step"]) == (2, 3, 3)
    assert "Worker 2 of 3 (key" in notes and "goes on without it, with 2 workers" in notes
    assert "The run is complete; 1 worker was convicted." in notes
    judged = without_torch("judge", convicted["evidence"], "--job", convicted["job"], "--json")
    assert judged.returncode == 1, judged.stderr
    assert json.loads(judged.stdout)["convicted"][0]["signer"] == convicted["key_id"]
    # Without the option the same command stops.
    code, told, words = trained(job, tmp_path / "stopped", LIE)
    assert code == 1 and not told and "Convicted: worker 2 " in words


@pytest.mark.long
def test_one_who_lies_in_every_team_leaves_one_worker(
    job: Job, one: RunSummary, tmp_path: Path
) -> None:
    lie = LIE | {"rank": 1, "part": 3}
    code, told, notes = trained(job, tmp_path / "run", lie, "--on-conviction", "continue")
    assert (code, told["run_root"], told["workers"]) == (1, one.run_root.hex(), 1)
    assert [c["workers"] for c in told["convicted"]] == [3, 2]
    assert "with worker 0 alone, and without checks" in notes


def test_a_run_that_went_on_says_so(
    job: Job, one: RunSummary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's end, without the processes: exit code 1, and what may stand in the run."""
    gone = ConvictedWorker(1, 2, "ab" * 32, 3, 2, "", tmp_path / "evidence", tmp_path / "job")

    def went_on(*_: object) -> RunSummary:
        return replace(one, convicted=(gone,))

    monkeypatch.setattr("tallystick.api.training.train_by", went_on)
    given = [str(job.directory), "--out", str(tmp_path / "run"), "--workers", "2", "--json"]
    given += ["--on-conviction", "continue"]
    for fraction, words in (("1", "computed again by another worker"), ("0.5", "tallystick audit")):
        found = CliRunner().invoke(train, [*given, "--check-workers", fraction])
        assert isinstance(found.exception, ExitError) and found.exception.code == 1
        assert words in found.stderr
        told = json.loads(found.stdout)
        assert told["convicted"][0] | {"step": 3, "key_id": "ab" * 32} == told["convicted"][0]


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
        with pytest.raises(UsageError, match="out of range"):
            shares.checking_of(fraction, job.directory, tmp_path / "run")
    checking = shares.checking_of(0.5, job.directory, tmp_path / "run")
    with pytest.raises(UsageError, match="With one worker"):
        train_by(Workers(1, checking=checking), job, tmp_path / "run", Options(), None)


@pytest.mark.long
def test_a_cheating_run_of_a_distributed_job(job: Job, tmp_path: Path) -> None:
    """A trainer that cheats as a whole is convicted in phase 3 against a distributed run, by a
    referee where torch cannot be imported."""
    from tallystick.run.cheats.training import declared_cheat
    from tallystick.run.store.unsigned import Declaration

    honest, cheat = tmp_path / "honest", tmp_path / "cheat"
    train_by(Workers(2), job, honest, Options(), None)
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
