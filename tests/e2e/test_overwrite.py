"""`--overwrite`: a script that runs again replaces what it made, and nothing else; a new job or
frozen set takes the old one's place only when it is whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick
from tallystick.cli.main import run
from tallystick.data.frozen import load_frozen
from tallystick.disk import files
from tallystick.disk.files import locked
from tallystick.disk.manifest import DirectoryKind, written_anew
from tallystick.errors import StorageError, UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.directory import RunStore

_TINY = ["--set", "features=2", "--set", "classes=2", "--set", "records=16", "--set"]
_KIND = DirectoryKind("thing", "last", lambda name: name in ("first", "last"))


def _calls(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> Any:
    capsys.readouterr()
    assert run([str(a) for a in arguments]) == code
    return json.loads(capsys.readouterr().out)


def _new(capsys: pytest.CaptureFixture[str], code: int, job: Path, steps: int, *more: str) -> Any:
    tiny = [*_TINY, "batch_size=2", "--steps", str(steps), "--json", *more]
    return _calls(capsys, code, "job", "new", "logreg", "--out", job, *tiny)


def test_a_script_runs_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, out, cheat, more = (tmp_path / name for name in ("job", "run", "cheat", "more"))
    roots = []
    for steps in (4, 4, 6):
        digest = _new(capsys, 0, job, steps, "--overwrite")["job_digest"]
        trained = _calls(capsys, 0, "train", job, "--out", out, "--overwrite", "--quiet", "--json")
        assert trained["job_digest"] == digest
        roots.append(trained["run_root"])
        _calls(
            capsys, 0, "attack", "wrong-learning-rate", job, "--out", cheat, "--overwrite", "--json"
        )
        arguments = ("--out", more, "--steps", 2, "--overwrite", "--json")
        assert _calls(capsys, 0, "job", "continue", out, *arguments)["continues"]
    assert roots[0] == roots[1] != roots[2]
    assert load_job(job).steps == 6
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cheat", "job", "more", "run"]


def test_without_it_all_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], logreg_run: RunSummary, mlp_job: Job
) -> None:
    job = tmp_path / "job"
    _new(capsys, 0, job, 4)
    before = (job / "job.json").read_bytes()
    refused = _new(capsys, 3, job, 6)
    assert "already contains a job" in refused["error"]
    assert "--overwrite" in refused["next_action"]
    assert (job / "job.json").read_bytes() == before
    other = tmp_path / "run"
    shutil.copytree(logreg_run.directory, other)
    refused = _calls(capsys, 3, "train", mlp_job.directory, "--out", other, "--json", "--quiet")
    assert "another job" in refused["error"]
    assert "--overwrite" in refused["next_action"]


def test_files_of_another_writer_stay(
    logreg_job: Job, logreg_run: RunSummary, copied: Callable[[Path], Path], tmp_path: Path
) -> None:
    job, out = tmp_path / "job", copied(logreg_run.directory)
    shutil.copytree(logreg_job.directory, job)
    tallystick.freeze({"x": np.zeros((8, 2))}, tmp_path / "set", dtype="f32", hold_out=0.5)
    for place in (job / "data", out / "checkpoints", tmp_path / "set" / "validation"):
        (place / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match=r"data/thesis\.tex"):
        new_job("logreg", job, steps=2, overwrite=True)
    with pytest.raises(UsageError, match=r"checkpoints/thesis\.tex"):
        train_job(logreg_job, out, Options(overwrite=True))
    with pytest.raises(UsageError, match=r"validation/thesis\.tex"):
        tallystick.freeze({"x": np.zeros((8, 2), np.float32)}, tmp_path / "set", overwrite=True)
    for place in (job, out):
        (place / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        new_job("logreg", job, steps=2, overwrite=True)
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        train_job(logreg_job, out, Options(overwrite=True))
    assert RunStore(out).signed
    assert (job / "thesis.tex").read_text() == "mine"
    assert load_job(job).digest == logreg_job.digest


def test_what_a_crash_left_goes_and_a_copy_of_the_manifest_stays(
    logreg_job: Job, logreg_run: RunSummary, copied: Callable[[Path], Path]
) -> None:
    out = copied(logreg_run.directory)
    copy = out / "run.json.bak"
    copy.write_text("mine")
    with pytest.raises(UsageError, match=r"run\.json\.bak"):
        train_job(logreg_job, out, Options(overwrite=True))
    assert RunStore(out).signed
    copy.unlink()
    (out / "metrics.jsonl.part").write_text("half")
    assert train_job(logreg_job, out, Options(overwrite=True)).run_root == logreg_run.run_root


def test_a_run_under_way_and_the_job_inside_stay(
    logreg_job: Job, logreg_run: RunSummary, copied: Callable[[Path], Path]
) -> None:
    out = copied(logreg_run.directory)
    store = RunStore(out)
    with locked(store.lock_path), pytest.raises(StorageError, match="Another trainer"):
        train_job(logreg_job, out, Options(overwrite=True))
    with pytest.raises(UsageError, match="is inside"):
        train_job(store.job(), out, Options(overwrite=True))
    replayed = Options(overwrite=True, replay=out.parent / "nowhere")
    for wrong in (Options(overwrite=True, compress=True), replayed):
        with pytest.raises(UsageError, match="no rounding logs"):
            train_job(logreg_job, out, wrong)
    assert store.signed
    assert tallystick.train(logreg_job, out, overwrite=True, progress=False).run_root == (
        logreg_run.run_root
    )


def test_a_job_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {"features": "2", "classes": "2", "records": "16", "batch_size": "2"}
    old = new_job("logreg", tmp_path / "job", pairs, steps=2)

    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.OS, "write", full)
        with pytest.raises(StorageError):
            new_job("logreg", old.directory, pairs, steps=3, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["job"]
    assert load_job(old.directory).digest == old.digest
    new_job("logreg", old.directory, pairs, steps=3, overwrite=True)
    assert load_job(old.directory).steps == 3


def test_a_frozen_set_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "x.npz", tmp_path / "set"
    made = []
    for rows in (6, 9):
        np.savez(source, x=np.ones((rows, 2), np.float32))
        arguments = ("--out", out, "--hold-out", "1/3", "--overwrite", "--json")
        made.append(_calls(capsys, 0, "data", "freeze", source, *arguments))
    assert [one["records"] for one in made] == [4, 6]
    held = load_frozen(out).validation
    assert held is not None
    assert held.count == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["set", "x.npz"]
    refused = _calls(capsys, 3, "data", "freeze", source, "--out", out, "--json")
    assert "--overwrite" in refused["next_action"]


def test_the_swap_keeps_links_and_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o750)
    (real / "last").write_text("old")
    link.symlink_to(real)
    with written_anew(link, _KIND, overwrite=True) as place:
        (place / "last").write_text("new")
        assert (real / "last").read_text() == "old"
    assert link.is_symlink()
    assert (real / "last").read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o750

    rename, calls = os.rename, []

    def second_fails(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", second_fails)
    with pytest.raises(StorageError), written_anew(real, _KIND, overwrite=True) as place:
        (place / "last").write_text("newer")
    assert (real / "last").read_text() == "new"
    assert len(calls) == 3
