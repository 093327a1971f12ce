"""Two jobs compared in words."""

from __future__ import annotations

from pathlib import Path

import pytest

import tallystick
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.show.summary import RunSummary

BASE = {"features": "4", "classes": "3", "records": "32", "batch_size": "8", "dropout": "0.25"}


def job(place: Path, seed: int = 3, steps: int = 6, **changed: str) -> Job:
    return new_job("mlp", place, BASE | changed, steps=steps, seed=seed, checkpoint_interval=3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return job(tmp_path_factory.mktemp("jobs") / "base")


def test_one_job_is_equal(base: Job) -> None:
    found = tallystick.diff(base, base.directory)
    assert found.equal and not found.causes and not found.fields
    assert repr(found).startswith("<Two jobs: equal")


@pytest.mark.parametrize(
    ("changed", "cause", "words"),
    [
        ({"seed": 4}, "seed", "is 3 in A and 4 in B"),
        ({"lr": "0.5"}, "rate", "0.5 in B"),
        ({"dropout": "0.5"}, "dropout", "mask"),
        ({"dropout": "0.0"}, "dropout", "none in B"),
        ({"hidden": "24"}, "program", "models"),
        ({"batch_size": "4"}, "batch size", "8 in 1"),
        ({"weight_decay": "0.25"}, "setting", "optimizers"),
        ({"steps": 7}, "steps", "one of B 7"),
    ],
)
def test_a_changed_field_is_named(
    tmp_path: Path, base: Job, changed: dict[str, str | int], cause: str, words: str
) -> None:
    found = tallystick.diff(base, job(tmp_path / "other", **changed))  # type: ignore[arg-type]
    assert not found.equal and found.cause is not None
    assert (found.cause.kind, words in found.cause.sentence) == (cause, True), found.causes
    assert found.fields


def test_what_no_digest_covers_stands_apart(base: Job) -> None:
    from dataclasses import replace

    found = tallystick.diff(base, replace(base, about={**base.about, "source": "somebody's word"}))
    assert found.equal
    assert [apart.label for apart in found.uncommitted] == ["source"]


def test_a_run_stands_for_its_job(mlp_run: RunSummary, mlp_job: Job) -> None:
    assert tallystick.diff(mlp_run.directory, mlp_job).equal


def test_another_directory_is_refused(tmp_path: Path, base: Job) -> None:
    with pytest.raises(UsageError, match="neither a job nor a run"):
        tallystick.diff(base, tmp_path)
