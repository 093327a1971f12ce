"""The weights of the best committed validation loss: kept, exported, verified (PROGRAM 7)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from unit.protocol.validated import CYCLE, make_validated_job

from tallystick.disk.tensorfile import read_tensors
from tallystick.errors import DigestMismatchError, UsageError
from tallystick.job.recipes import new_job
from tallystick.program.validation import StopRule, best_pass_step
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.continuing import continue_run
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import Which, export_model, verify_model


def improving(path: Path, interval: int | None = None, pause: int | None = None) -> Path:
    """A run of passes of which neither the first nor the last is the best."""
    pairs = {"hidden": "16", "batch_size": "8", "records": "200", "lr": "0.05"}
    job = new_job(
        "mlp", path / "job", pairs, steps=70, evaluate_every=10, stop_rule=StopRule(),
        checkpoint_interval=interval,
    )  # fmt: skip
    if pause is not None:
        train_job(job, path / "run", Options(keep=1, stop_before=pause))
    train_job(job, path / "run", Options(keep=1))
    return path / "run"


def test_the_best_state_stays_and_is_exported(tmp_path: Path) -> None:
    run = improving(tmp_path)
    store = RunStore(run)
    job, journal = store.job(), store.journal()
    timetable = job.commitment.timetable
    losses = [v for _, v in sorted(_validation(run).items())]
    best = int(np.argmin(losses)) + 1
    assert 1 < best < len(losses)
    step = best * timetable.cycle
    assert best_pass_step(timetable, best, len(losses), journal.last_step) == step
    assert store.stored_steps() == [step, journal.last_step]
    report = export_model(run, tmp_path / "best.safetensors", which=Which(best=True))
    assert report.step == step and report.state_root == dict(journal.checkpoints)[step]
    export_model(run, tmp_path / "last.safetensors")
    a, b = (
        read_tensors(tmp_path / f"{n}.safetensors", "m", strict=False)[0] for n in ("best", "last")
    )
    assert any(a[name].tobytes() != b[name].tobytes() for name in a)
    verify_model(tmp_path / "best.safetensors", run, which=Which(best=True))
    with pytest.raises(DigestMismatchError):
        verify_model(tmp_path / "best.safetensors", run)


def _validation(run: Path) -> dict[int, float]:
    from tallystick.run.show.inspect import inspect_run

    return {v["step"]: v["loss"] for v in inspect_run(run)["validation"]}


def test_a_resumed_run_keeps_it_too(tmp_path: Path) -> None:
    """It was stored before the pause, and is the best one at the end."""
    whole = RunStore(improving(tmp_path / "whole")).stored_steps()
    resumed = improving(tmp_path / "resumed", pause=whole[0] + 5)
    assert RunStore(resumed).stored_steps() == whole and len(whole) == 2


def test_what_has_no_best_state_is_refused_by_name(tmp_path: Path) -> None:
    plain = new_job("logreg", tmp_path / "job", {}, steps=3, evaluate_every=0)
    train_job(plain, tmp_path / "run", Options())
    with pytest.raises(UsageError, match="no committed validation loss that is the best"):
        export_model(tmp_path / "run", tmp_path / "m", which=Which(best=True))
    run = improving(tmp_path / "odd", interval=7)
    with pytest.raises(UsageError, match="is not a checkpoint"):
        export_model(run, tmp_path / "m", which=Which(best=True))


def test_the_best_pass_of_the_run_before_is_not_taken_for_one_of_this(tmp_path: Path) -> None:
    """Passes are counted over both runs; the state of an earlier one is not here."""
    job = make_validated_job(tmp_path / "job", None, interval=CYCLE)  # its second pass is the best
    train_job(job, tmp_path / "run", Options())
    more = continue_run(tmp_path / "run", tmp_path / "more", 9)
    train_job(more, tmp_path / "on", Options(keep=1))
    assert RunStore(tmp_path / "on").stored_steps() == [3 * CYCLE]
    with pytest.raises(UsageError, match="to the run that this one continues"):
        export_model(tmp_path / "on", tmp_path / "m", which=Which(best=True))
    assert export_model(tmp_path / "run", tmp_path / "m", which=Which(best=True)).step == 2 * CYCLE


def test_states_that_a_user_keeps_do_not_push_it_out(tmp_path: Path) -> None:
    job = make_validated_job(tmp_path / "job", None, interval=CYCLE)
    train_job(job, tmp_path / "run", Options(keep=2))
    assert RunStore(tmp_path / "run").stored_steps() == [2 * CYCLE, 4 * CYCLE]


def test_a_pass_that_is_nan_stops_a_run_that_only_its_slot_stops(tmp_path: Path) -> None:
    """The claim of such a run stands: its last loss is not finite, and that is not the reason."""
    from dataclasses import replace

    from tallystick.job.job_file import load_job
    from tallystick.run.execute.auditor import audit_run

    job = _without_the_stop_on_nan(tmp_path)
    done = train_job(load_job(job), tmp_path / "run", replace(Options()))
    assert done.reason == "early stop" and not np.isfinite(done.validation[-1][1])
    assert audit_run(tmp_path / "run").accepted


def _without_the_stop_on_nan(path: Path) -> Path:
    import torch
    from torch import nn
    from torch.nn import functional as F

    import tallystick
    from tallystick.job.reading import HeldOut
    from tallystick.job.save import save_job

    x = np.ones((24, 3), np.float32)
    x[20:] = np.inf  # the held-out records
    y = np.zeros(24, np.int64)
    model = nn.Sequential(nn.Linear(3, 2))
    example = {"x": torch.zeros(4, 3), "y": torch.zeros(4, dtype=torch.int64)}
    loss = lambda m, b: F.cross_entropy(m(b["x"]), b["y"])  # noqa: E731
    made = tallystick.capture(model, loss, example, tallystick.SGD(lr=0.1))
    save_job(
        made.step, path / "job", {"x": x[:20], "y": y[:20]}, steps=40,
        held=HeldOut({"x": x[20:], "y": y[20:]}, made.evaluation, 4, StopRule(2)),
        stop_on_non_finite=False,
    )  # fmt: skip
    return path / "job"
