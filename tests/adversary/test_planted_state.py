"""A state of an audit that somebody else has written: `audit --state` takes up its own alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tallystick.cli.main import run as main
from tallystick.devices.environment import exact_environment
from tallystick.disk.manifest import load_manifest, manifest_bytes
from tallystick.job.recipes import new_job
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.auditor import check_claim
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.parallel.sample import draw
from tallystick.run.parallel.state import AuditPlan, kept
from tallystick.run.parallel.task import Segment, binding, segments_of
from tallystick.run.show.audit_report import StretchOutcome
from tallystick.run.store.unsigned import Declaration

Plant = Callable[..., Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An honest run and a false one of three segments each."""
    path = tmp_path_factory.mktemp("planted")
    pairs = {"records": "40", "batch_size": "4"}
    job = new_job("logreg", path / "job", pairs, steps=12, checkpoint_interval=4, evaluate_every=0)
    train_job(job, path / "honest", Options())
    cheat = declared_cheat(job, Declaration("wrong-learning-rate"))
    train_job(job, path / "cheat", Options(maker=cheat))
    return path / "honest", path / "cheat"


def _agreed(segment: Segment) -> StretchOutcome:
    return StretchOutcome(segment.first, segment.last, 1, segment.steps, 1, "avx2", 1, 0.1)


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """A state as a trainer would make it with this very program, then copied by the auditor, who
    so owns its files. With `own` the auditor's own key has signed it."""

    def made(run: Path, own: bool = False, sample: int = 0) -> Path:
        cache = "auditor" if own else "trainer"
        monkeypatch.setenv("TALLYSTICK_CACHE", str(tmp_path / cache))
        with exact_environment():
            checked = check_claim(run, None, None)
        segments = segments_of(checked)
        assert len(segments) == 3
        chosen, secret = segments, None
        if sample:
            # The trainer looks for a secret that draws no false segment.
            for n in range(1000):
                secret = n.to_bytes(32, "big")
                claim = checked.claim
                chosen = draw(secret, checked.job.digest, claim.run_root, segments, sample)
                if chosen == segments[:sample]:
                    break
        with kept(tmp_path / "made", run) as state:
            state.begin(plan := AuditPlan(binding(checked.claim), segments, chosen, secret))
            for segment in [] if sample else segments:
                state.keep(plan, segment, _agreed(segment))
        monkeypatch.setenv("TALLYSTICK_CACHE", str(tmp_path / "auditor"))
        return Path(shutil.copytree(tmp_path / "made", tmp_path / "state"))

    return made


def _refused(run: Path, state: Path, said: Any, *more: str) -> None:
    assert main(["audit", str(run), "--state", str(state), *more]) == 3
    captured = said.readouterr()
    assert "MATCH" not in captured.out and "ACCEPTED" not in captured.out
    assert "not written by an audit of yours" in captured.err


def test_a_state_that_came_with_the_run(
    runs: tuple[Path, Path], plant: Plant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was repeated, and it was a MATCH of the whole run (exit code 0)."""
    cheat = runs[1]
    state = plant(cheat)
    _refused(cheat, state, capsys)
    _refused(cheat, state, capsys, "--quiet", "--json")
    assert main(["audit", str(cheat), "--state", str(tmp_path / "new"), "--quiet"]) == 1


def test_parts_of_it(
    runs: tuple[Path, Path], plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    """The auditor's own manifest with one planted result beside it; and a signature taken off, cut,
    or from another file."""
    cheat = runs[1]
    state = plant(cheat)
    own = state.parent / "own"
    for name in ("audit.json", "segment-0-4.json", "segment-4-8.json", "segment-8-12.json"):
        (state / name).rename(own.with_name(name))
    with exact_environment():
        checked = check_claim(cheat, None, None)
    segments = segments_of(checked)
    with kept(state, cheat) as begun:
        begun.begin(AuditPlan(binding(checked.claim), segments, segments))
    mine = load_manifest(state / "audit.json", "state", "tallystick-audit/1")
    planted = own.with_name("segment-4-8.json")
    body = load_manifest(planted, "state", "tallystick-audit-segment/1")
    for signature in (body["signature"], mine["signature"], "", "00", "zz", None, 7, "00" * 64):
        (state / planted.name).write_bytes(manifest_bytes({**body, "signature": signature}))
        _refused(cheat, state, capsys)
    del body["signature"]
    (state / planted.name).write_bytes(manifest_bytes(body))
    _refused(cheat, state, capsys)


def test_a_planted_secret_draws_nothing(
    runs: tuple[Path, Path], plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--sample` took the secret of the state, and with it the segments that the trainer chose."""
    cheat = runs[1]
    _refused(cheat, plant(cheat, sample=1), capsys, "--sample", "1")


def test_ones_own_state_is_taken_up(
    runs: tuple[Path, Path], plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    honest, cheat = runs
    state = plant(honest, own=True)
    shutil.copytree(state, state.parent / "again")
    assert main(["audit", str(honest), "--state", str(state), "--quiet"]) == 0
    capsys.readouterr()
    # It is of one run: for another one it is refused.
    assert main(["audit", str(cheat), "--state", str(state.parent / "again")]) == 3
    assert "another run" in capsys.readouterr().err
