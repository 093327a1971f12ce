"""What a tracker is told, whatever tool it logs to; and that it changes no bit of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import tallystick
from tallystick.cli.main import run as command
from tallystick.errors import CannotCheckError
from tallystick.job.job import Job
from tallystick.run.execute.listener import Several, Silent
from tallystick.run.show.summary import RunSummary
from tallystick.trackers.tracker import Tracker, tool


class Kept(Tracker):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: list[Mapping[str, str] | None] = []
        self.curve: list[tuple[int, dict[str, float]]] = []

    def opened(self, facts: Mapping[str, str]) -> None:
        self.facts.append(facts)

    def logged(self, step: int, values: Mapping[str, float]) -> None:
        self.curve.append((step, dict(values)))

    def closed(self, facts: Mapping[str, str] | None) -> None:
        self.facts.append(facts)


def losses(kept: Kept) -> list[tuple[int, float]]:
    return [(step, values["loss"]) for step, values in kept.curve if "loss" in values]


def test_the_curves_and_the_root_of_a_run(
    mlp_job: Job, mlp_run: RunSummary, tmp_path: Path
) -> None:
    kept = Kept()
    made = tallystick.train(mlp_job, tmp_path / "run", track=[kept], progress=False)
    assert made.run_root == mlp_run.run_root
    assert losses(kept) == list(enumerate(made.losses, 1))
    passes = [(s, v["validation_loss"]) for s, v in kept.curve if "validation_loss" in v]
    assert passes == list(made.validation)
    first, last = kept.facts
    assert first == {
        "job_digest": mlp_job.digest.hex(),
        "contract": mlp_job.commitment.contract,
    }
    assert last is not None and last["run_root"] == made.run_root.hex()
    assert last["steps"] == str(made.steps)
    # A run that was finished before: its root, and no curve.
    again = Kept()
    tallystick.train(mlp_job, tmp_path / "run", track=[again], progress=False)
    assert again.curve == [] and again.facts[1] == last


class Stops(Silent):
    """Ends a training in its fourth step."""

    def step(self, step: int, loss: float, seconds: float) -> None:
        if step == 3:
            raise RuntimeError("a listener that fails")


def test_a_run_that_ends_with_an_error_has_no_root(mlp_job: Job, tmp_path: Path) -> None:
    kept = Kept()
    with pytest.raises(RuntimeError, match="that fails"):
        tallystick.train(mlp_job, tmp_path / "run", listener=Stops(), track=[kept])
    assert len(kept.facts) == 2 and kept.facts[1] is None
    assert [step for step, _ in losses(kept)] == [1, 2, 3]


def test_a_run_that_never_began_opens_nothing(mlp_job: Job, tmp_path: Path) -> None:
    kept = Kept()
    (tmp_path / "file").write_text("not a run")
    with pytest.raises(tallystick.errors.TallystickError):
        tallystick.train(mlp_job, tmp_path, track=[kept], progress=False)
    assert kept.facts == [] and kept.curve == []


class NeverOpens(Kept):
    """A tool that is not there; closing what was not opened fails too, as with W&B's."""

    def opened(self, facts: Mapping[str, str]) -> None:
        raise RuntimeError("no server")

    def closed(self, facts: Mapping[str, str] | None) -> None:
        raise AttributeError("nothing to close")


def test_a_tool_that_cannot_be_opened_says_why(mlp_job: Job, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no server"):
        tallystick.train(mlp_job, tmp_path / "run", track=[NeverOpens()], progress=False)


def test_an_interrupted_run_has_no_root(mlp_run: RunSummary) -> None:
    kept = Kept()
    kept.ended(replace(mlp_run, finished=False))
    assert kept.facts == []
    kept._timetable = object()  # type: ignore[assignment]
    kept.ended(replace(mlp_run, finished=False))
    assert kept.facts == [None]


def test_several_pass_on_what_each_can_hear(mlp_job: Job) -> None:
    kept, calls = Kept(), list[str]()

    class Hears(Silent):
        def notice(self, text: str) -> None:
            calls.append(text)

    both = Several(Hears(), kept)
    both.notice("word")
    both.begin(mlp_job, 0)
    both.metrics(0, {"grad_norm": 2.0})
    both.step(0, 1.0, 0.1)
    both.evaluated(1, 3.0)
    both.ended(None)
    assert calls == ["word"]
    assert kept.curve == [(1, {"loss": 1.0, "grad_norm": 2.0}), (1, {"validation_loss": 3.0})]


def test_a_tool_that_is_not_there() -> None:
    with pytest.raises(CannotCheckError, match="frobnicate is not installed"):
        tool("frobnicate", "frobnicate")


@pytest.mark.parametrize("text", ["tensorboard", "tensorboard=", "other", "=x"])
def test_names_that_are_no_tracker(mlp_run: RunSummary, tmp_path: Path, text: str) -> None:
    job = str(mlp_run.directory / "job")
    assert command(["train", job, "--out", str(tmp_path / "run"), "--track", text]) == 3
    assert not (tmp_path / "run").exists()
