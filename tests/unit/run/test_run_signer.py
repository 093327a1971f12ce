"""Who signs a run, and which states it keeps."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.commit.checkpoint import checkpoint_steps
from tallystick.commit.signing import PrivateKey, verify_run
from tallystick.disk.keys import load_private_key
from tallystick.job.job import Job
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck
from tallystick.run.store.stored_states import spread, to_drop


def signer_of(run: Path) -> str:
    envelope = RunStore(run).envelope()
    assert envelope is not None
    return verify_run(envelope)[0].signer.key_id


def test_a_run_without_a_key_keeps_its_own(mlp_job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_job(mlp_job, out, Options(stop_before=4))
    train_job(mlp_job, out, Options())
    path = out / "signer.pem"
    assert load_private_key(path).public.key_id == signer_of(out)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert fsck(out).clean
    before = path.read_bytes()
    (out / "commitment.json").unlink()  # as if killed between key and signature
    assert train_job(mlp_job, out, Options()).signer == signer_of(out)
    assert path.read_bytes() == before


def test_a_key_that_was_given_is_not_stored(mlp_job: Job, tmp_path: Path) -> None:
    key, out = PrivateKey.generate(), tmp_path / "run"
    train_job(mlp_job, out, Options(key=key))
    assert signer_of(out) == key.public.key_id
    assert not (out / "signer.pem").exists()
    secret = key.pem().split(b"\n")[1]
    assert not any(secret in p.read_bytes() for p in out.rglob("*") if p.is_file())
    assert fsck(out).clean


def test_a_given_key_takes_the_place_of_an_unused_one(mlp_job: Job, tmp_path: Path) -> None:
    key, out = PrivateKey.generate(), tmp_path / "run"
    train_job(mlp_job, out, Options())
    (out / "commitment.json").unlink()
    train_job(mlp_job, out, Options(key=key))
    assert signer_of(out) == key.public.key_id
    assert not (out / "signer.pem").exists()


@pytest.mark.parametrize("change", ["another", "flipped", "empty"])
def test_fsck_reports_a_wrong_key(change: str, mlp_job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_job(mlp_job, out, Options())
    path = out / "signer.pem"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    pem = {"another": PrivateKey.generate().pem(), "flipped": bytes(data), "empty": b""}[change]
    path.write_bytes(pem)
    assert [p.path for p in fsck(out).problems] == ["signer.pem"]


def test_fsck_names_what_a_killed_dispute_left(mlp_job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_job(mlp_job, out, Options())
    (out / "scratch-abc").mkdir()
    (problem,) = fsck(out).problems
    assert problem.path == "scratch-abc" and "dispute" in problem.message
    shutil.rmtree(out / "scratch-abc")
    assert fsck(out).clean


@given(st.integers(1, 120), st.integers(1, 30), st.integers(1, 600))
def test_kept_states_lie_evenly(keep: int, interval: int, steps: int) -> None:
    """No gap is longer than a N-th of the run and one interval, and N states are enough."""
    wanted = spread(steps, interval, keep)
    due = checkpoint_steps(steps, interval)[1:]
    assert wanted <= set(due) and len(wanted) <= keep
    stored: list[int] = []
    for step in due:
        stored.append(step)
        while (drop := to_drop(stored, keep, set(), wanted)) is not None:
            stored.remove(drop)
        assert len(stored) <= keep
    assert wanted <= set(stored)
    gaps = [b - a for a, b in itertools.pairwise([0, *stored])]
    assert max(gaps) <= -(-steps // keep) + interval
