"""metrics.jsonl: each step once, after interruptions too; no command believes it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

import tallystick
from tallystick.errors import CorruptFileError
from tallystick.job.job import Job
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.show.inspect import inspect_run
from tallystick.run.show.summary import seconds_a_step
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck
from tallystick.run.store.unsigned import MetricLog, read_metrics


class Told(Silent):
    def __init__(self) -> None:
        self.norms: dict[int, float] = {}

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        assert set(values) == {"grad_norm"}
        self.norms[step] = values["grad_norm"]


def test_the_gradient_norm_is_kept_and_told(mlp_job: Job, tmp_path: Path) -> None:
    told = Told()
    run = train_job(mlp_job, tmp_path / "run", listener=told)
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(mlp_job.steps))
    assert [line["loss"] for line in lines] == list(run.losses)
    assert {line["step"]: line["grad_norm"] for line in lines} == told.norms
    assert all(norm > 0 for norm in told.norms.values())
    assert not fsck(tmp_path / "run").problems
    assert tallystick.audit(tmp_path / "run", mlp_job).accepted


def test_a_repeated_step_is_there_once(mlp_job: Job, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_job(mlp_job, whole)
    train_job(mlp_job, parts, Options(stop_before=3))
    torn = parts / "metrics.jsonl"
    torn.write_bytes(torn.read_bytes() + b'{"step": 3, "loss"')
    train_job(mlp_job, parts, Options(stop_before=7))
    RunStore(parts).drop_state(7)
    train_job(mlp_job, parts)
    assert torn.read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_the_time_of_a_step_is_over_the_sessions_that_ended() -> None:
    ended = {"start_step": 0, "end_step": 4, "milliseconds": 400}
    killed = {"start_step": 4, "isa": "avx2"}
    last = {"start_step": 6, "end_step": 10, "milliseconds": 1200}
    assert seconds_a_step([ended, killed, last]) == 0.2
    for nothing in ([], [killed], [{**ended, "end_step": 0}], [{**ended, "milliseconds": 0}]):
        assert seconds_a_step(nothing) is None
    odd = {"start_step": 9, "end_step": -1, "milliseconds": -5}
    assert seconds_a_step([odd, ended]) == 0.1


def test_a_run_says_its_time_once_for_each_session(logreg_job: Job, tmp_path: Path) -> None:
    ticking = itertools.count()
    for stop in (2, None):
        clock = lambda: float(next(ticking))  # noqa: E731
        train_job(logreg_job, tmp_path / "run", Options(stop_before=stop, clock=clock))
    found = inspect_run(tmp_path / "run")
    assert [(s["start_step"], s["end_step"]) for s in found["sessions"]] == [(0, 2), (2, 6)]
    assert found["step_seconds"] > 1
    assert not fsck(tmp_path / "run").problems


def test_a_job_without_metrics_has_no_file(logreg_job: Job, tmp_path: Path) -> None:
    train_job(logreg_job, tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert read_metrics(tmp_path / "run" / "metrics.jsonl") == []


def test_a_forged_file_changes_nothing(mlp_job: Job, tmp_path: Path) -> None:
    run = train_job(mlp_job, tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    for data in (b"", b"no json\n", b"[1]\n", b'{"step": "1"}\n', b"[" * 100_000 + b"\n"):
        path.write_bytes(data)
        assert read_metrics(path) == []
        assert tallystick.audit(tmp_path / "run", mlp_job).accepted
    assert train_job(mlp_job, tmp_path / "run").run_root == run.run_root


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(CorruptFileError):
        MetricLog(tmp_path / "metrics.jsonl", 0)
    assert (tmp_path / "other").read_bytes() == b"mine"


def test_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    log = MetricLog(tmp_path / "metrics.jsonl", 0)
    log.add(0, math.nan, {"grad_norm": math.inf})
    log.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line == {"step": 0, "loss": None, "grad_norm": None}


def test_a_metric_of_a_taken_name_hides_nothing(tmp_path: Path) -> None:
    log = MetricLog(tmp_path / "metrics.jsonl", 0)
    log.add(0, 0.5, {"step": 7.5, "loss": 2.0})
    log.close()
    kept = {"step": 0, "loss": 0.5, "metric.step": 7.5, "metric.loss": 2.0}
    assert read_metrics(tmp_path / "metrics.jsonl") == [kept]
