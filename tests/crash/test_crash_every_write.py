"""A fault at each write, flush and rename of a run; then the same command (DESIGN 7, P9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import Faults, KilledError, faults

from tallystick.errors import StorageError
from tallystick.job.job import Job
from tallystick.run.cheats.training import Cheat
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.fsck import fsck

# A clock that stands: how many states are worth their time does not depend on the machine's load.
OPTIONS = Options(trace=(3, 4), clock=lambda: 0.0)


def _count(job: Job, out: Path) -> int:
    with faults(0, "kill") as counted:
        train_job(job, out, OPTIONS)
    return counted.calls


def _interrupted(job: Job, out: Path, at: int, kind: str) -> Faults:
    with faults(at, kind) as installed:
        try:
            train_job(job, out, OPTIONS)
        except KilledError:
            assert kind == "kill"
        except StorageError as error:
            assert kind == "full"
            assert "disk is full" in error.message
            assert error.exit_code == 2
    return installed


@pytest.mark.parametrize("kind", ["kill", "full"])
def test_resume_after_a_fault_at_any_write_gives_the_same_run(
    kind: str, logreg_job: Job, logreg_run: RunSummary, tmp_path: Path
) -> None:
    total = _count(logreg_job, tmp_path / "counting")
    assert total > 60
    # A full disk takes the same ways out as a kill, so every third place will do for it.
    for at in range(1, total + 1, 1 if kind == "kill" else 3):
        out = tmp_path / f"run-{at}"
        assert _interrupted(logreg_job, out, at, kind).tripped
        result = train_job(logreg_job, out, OPTIONS)
        assert result.finished, at
        assert result.run_root == logreg_run.run_root, at
        assert result.losses == logreg_run.losses, at
        report = fsck(out)
        assert report.clean, (at, report.problems)
    assert audit_run(tmp_path / "run-31").accepted


def test_two_faults_in_a_row(logreg_job: Job, logreg_run: RunSummary, tmp_path: Path) -> None:
    total = _count(logreg_job, tmp_path / "counting")
    for first in range(3, total, 7):
        out = tmp_path / f"run-{first}"
        _interrupted(logreg_job, out, first, "kill")
        _interrupted(logreg_job, out, max(1, first // 3), "full")
        assert train_job(logreg_job, out).run_root == logreg_run.run_root


def test_a_torn_journal_is_taken_up(mlp_job: Job, mlp_run: RunSummary, tmp_path: Path) -> None:
    """Whatever prefix of the journal reached the disk, the run ends with the same root."""
    out = tmp_path / "run"
    train_job(mlp_job, out, Options(stop_before=11))
    whole = (out / "journal").read_bytes()
    for length in (len(whole) - 1, len(whole) - 40, len(whole) // 2, 60):
        (out / "journal").write_bytes(whole[:length])
        result = train_job(mlp_job, out, Options(stop_before=11))
        assert result.steps == 11
    assert train_job(mlp_job, out).run_root == mlp_run.run_root


def test_a_machine_that_computes_otherwise_after_a_restart_is_named(
    mlp_job: Job, tmp_path: Path
) -> None:
    from tallystick.errors import MismatchError
    from tallystick.program.state import State
    from tallystick.run.cheats.override import Override

    out = tmp_path / "run"
    train_job(mlp_job, out, Options(stop_before=9))
    for path in (out / "checkpoints").iterdir():
        path.unlink()

    class Flip(Override):
        def before(self, step: int, state: State) -> None:
            if step == 4:
                state.slots["param.0.weight"].view("u4").reshape(-1)[0] ^= 1

    with pytest.raises(MismatchError) as caught:
        train_job(mlp_job, out, Options(maker=Cheat(Flip())))
    assert caught.value.exit_code == 1
    assert "fsck" in caught.value.next_action
