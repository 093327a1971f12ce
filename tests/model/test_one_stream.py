"""`save_job` with an order, an end of epochs and a program for each step (COMMITMENTS 7.7)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import Tensor, nn

import tallystick
from tallystick.api.capturing import Capture
from tallystick.cli import main
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.run.show.inspect import inspect_job

RECORDS, BATCH, WIDTH = 10, 4, 3


def columns(count: int = RECORDS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(count)
    return {
        "x": rng.standard_normal((count, WIDTH), dtype=np.float32),
        "y": rng.standard_normal((count, 1), dtype=np.float32),
    }


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.one, self.two = nn.Linear(WIDTH, 6), nn.Linear(6, 1)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor, deep: bool = True) -> Any:
        hidden = torch.relu(self.one(x))
        return self.two(self.drop(hidden) if deep else hidden)


def loss(deep: bool) -> Any:
    def of(module: nn.Module, batch: Any) -> Tensor:
        found: Tensor = (module(batch["x"], deep) - batch["y"]).square().mean()
        return found

    return of


def optimizer() -> Any:
    return tallystick.AdamW(lr="lr")


def captured(module: nn.Module, size: int, deep: bool = True, **more: Any) -> Capture:
    batch = {"x": torch.zeros(size, WIDTH), "y": torch.zeros(size, 1)}
    return tallystick.capture(module, loss(deep), batch, optimizer(), **more)


RATES = {"lr": [0.01 / (1 + t) for t in range(6)]}


def saved(path: Path, **given: Any) -> Job:
    module = Net().train()
    return captured(module, BATCH).save_job(path, columns(), steps=6, schedules=RATES, **given)


def test_the_default_is_the_job_of_before(tmp_path: Path) -> None:
    job = saved(tmp_path / "a")
    assert job.commitment.format_version == 1
    again = saved(tmp_path / "b", order="shuffled", epoch_end="run on")
    assert again.digest == job.digest
    # Where batches fill an epoch, every end is the same job.
    whole = Net().train()
    made = [
        captured(whole, 5).save_job(
            tmp_path / end, columns(), steps=6, schedules=RATES, epoch_end=end
        ).digest
        for end in ("run on", "drop", "short")
    ]  # fmt: skip
    assert len(set(made)) == 1


@pytest.mark.parametrize("order", ["shuffled", "sequential"])
def test_a_short_step_is_the_last_of_an_epoch(tmp_path: Path, order: str) -> None:
    module = Net().train()
    main_step, short = captured(module, BATCH), captured(module, 2)
    job = main_step.save_job(
        tmp_path / "job", columns(), steps=6, schedules=RATES, order=order, epoch_end="short",
        short=short, validation=columns(7), validation_short=captured(module, 3),
        evaluate_every=2, stop_rule=tallystick.StopRule(),
    )  # fmt: skip
    found = inspect_job(job.directory)
    assert found["format_version"] == 3
    assert [p["name"] for p in found["programs"]] == [
        "step", "step-short", "validate", "validate-short", "decide",
    ]  # fmt: skip
    first, _, third = found["programs"][:3]
    assert (first["stream"], first["order"], first["end"]) == ("step", order, "short")
    assert (third["stream"], third["order"], third["epoch_records"]) == (
        "validate", "sequential", 7,
    )  # fmt: skip
    assert "2 batches of 4 after every 2 steps, the last one of 3" in job.about["validation"]
    run = tallystick.train(job, tmp_path / "run", progress=False)
    assert len(run.losses) == 6 and len(run.validation) == 3
    assert list(run.losses_of) == ["step"]
    steps = [tallystick.records_of(job, s) for s in range(job.steps)]
    trained = [s.numbers for s in steps if s.data == "train"]
    assert [len(numbers) for numbers in trained] == [4, 4, 2] * 2
    for epoch in (trained[:3], trained[3:]):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(RECORDS))
    assert tallystick.audit(tmp_path / "run", progress=False).accepted


def test_dropped_records_are_others_in_each_epoch(tmp_path: Path) -> None:
    job = saved(tmp_path / "job", epoch_end="drop")
    steps = [tallystick.records_of(job, s).numbers.tolist() for s in range(6)]
    left = [set(range(RECORDS)) - set(steps[e] + steps[e + 1]) for e in (0, 2, 4)]
    assert all(len(records) == 2 for records in left) and len(set(map(frozenset, left))) > 1


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    module = Net().train()
    for given, why in (
        ({"order": "reversed"}, "order of the records is 'reversed'"),
        ({"epoch_end": "pad"}, "epoch_end is 'pad'"),
        ({"epoch_end": "short"}, "no step is given for it"),
        ({"epoch_end": "short", "short": captured(module, 3)}, "the short step has another number"),
        ({"short": captured(module, 2)}, "No batch of an epoch is short"),
        ({"epoch_end": "drop", "short": captured(module, 2)}, "No batch of an epoch is short"),
    ):
        with pytest.raises(UsageError, match=why):
            saved(tmp_path / "job", **given)
        assert not (tmp_path / "job" / "job.json").exists()
    few = captured(module, 12)
    for end, why in (("drop", "fewer than one batch of 12"), ("short", "fewer than a batch of 12")):
        with pytest.raises(UsageError, match=why):
            few.save_job(tmp_path / "few", columns(), steps=6, schedules=RATES, epoch_end=end)


# -- structures by step ----------------------------------------------------------------------------
def by_step(path: Path, names: list[str], **given: Any) -> Job:
    module = Net().train()
    programs = {"deep": captured(module, BATCH), "flat": captured(module, BATCH, False)}
    rates = {"lr": [0.01 / (1 + t) for t in range(len(names))]}
    return tallystick.save_job(
        path, columns(), programs=programs, programs_of_steps=names, steps=len(names),
        schedules=rates, **given,
    )  # fmt: skip


def test_structures_share_records_rates_and_random_keys(tmp_path: Path) -> None:
    names = ["deep", "flat", "flat"] * 4
    job = by_step(tmp_path / "job", names)
    t = job.commitment.timetable
    assert job.commitment.format_version == 3
    assert [tuple(turn) for turn in t.turns] == [(0, 1), (1, 2)]
    plain = captured(Net().train(), BATCH).save_job(
        tmp_path / "plain", columns(), steps=12, schedules={"lr": job.scalars["lr"]}
    )
    for step, name in enumerate(names):
        ours, theirs = (tallystick.records_of(j, step) for j in (job, plain))
        assert (ours.program, theirs.program) == (name, "step")
        assert ours.numbers.tolist() == theirs.numbers.tolist()
        assert job.commitment.random_key(step) == plain.commitment.random_key(step)
        assert job.terms.scalar("lr", step) == plain.terms.scalar("lr", step)
    run = tallystick.train(job, tmp_path / "run", progress=False)
    # In the steps without dropout the losses follow; the first step is that of the plain job.
    other = tallystick.train(plain, tmp_path / "other", progress=False)
    assert run.losses[0] == other.losses[0] and run.losses[1] != other.losses[1]
    assert list(run.losses_of) == ["deep"] and len(run.losses_of["deep"]) == 12
    assert tallystick.audit(tmp_path / "run", progress=False).accepted
    assert main.run(["fsck", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    ("names", "every", "turns"),
    [
        ("d" * 8, 2, [(0, 2), "v"]),
        ("dffdffdf", 2, [(0, 1), (1, 1), "v", (1, 1), (0, 1), "v", (1, 2), "v"]),
        ("dffffffd", 4, [(0, 1), (1, 3), "v", (1, 3), (0, 1), "v"]),
        ("ddffffff", 3, [(0, 2), (1, 1), "v", (1, 3), "v", (1, 2)]),
    ],
)
def test_turns_are_the_shortest_that_repeat(
    tmp_path: Path, names: str, every: int, turns: list[Any]
) -> None:
    given: dict[str, Any] = {
        "validation": columns(8), "evaluate_every": every, "stop_rule": tallystick.StopRule(),
    }  # fmt: skip
    if set(names) == {"d"}:
        module = Net().train()
        job = tallystick.save_job(
            tmp_path / "job", columns(), programs={"deep": captured(module, BATCH)},
            programs_of_steps=["deep"] * 8, steps=8, schedules={"lr": [0.01] * 8}, **given,
        )  # fmt: skip
        assert job.commitment.format_version == 2
    else:
        words = {"d": "deep", "f": "flat"}
        job = by_step(tmp_path / "job", [words[n] for n in names], **given)
    t = job.commitment.timetable
    pass_turns = [(len(t.programs) - 2, 2), (len(t.programs) - 1, 1)]
    expected = [each for turn in turns for each in (pass_turns if turn == "v" else [turn])]
    assert [tuple(turn) for turn in t.turns] == expected
    trained = [s for s in range(job.steps) if not t.programs[t.at(s).program].by_pass]
    assert "".join(t.programs[t.at(s).program].name[0] for s in trained) == names
    interval = job.commitment.checkpoint_interval
    ends = [s + 1 for s in range(job.steps) if t.programs[t.at(s).program].name == "decide"]
    assert ends and all(end % interval == 0 for end in ends)


def test_short_batches_of_structures(tmp_path: Path) -> None:
    module = Net().train()
    programs = {
        "deep": captured(module, BATCH), "flat": captured(module, BATCH, False),
        "flat-short": captured(module, 2, False),
    }  # fmt: skip
    names = ["deep", "flat", "flat-short", "flat", "flat", "flat-short"]

    def made(of: list[str], path: Path) -> Job:
        return tallystick.save_job(
            path, columns(), programs=programs, programs_of_steps=of, steps=6,
            schedules=RATES, order="sequential", epoch_end="short",
        )  # fmt: skip

    job = made(names, tmp_path / "job")
    sizes = [len(tallystick.records_of(job, s).numbers) for s in range(6)]
    assert sizes == [4, 4, 2] * 2
    with pytest.raises(UsageError, match="has a turn with a batch of another size"):
        made(["deep", "flat", "flat", "flat", "flat-short", "flat"], tmp_path / "other")


def test_names_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for names, given, why in (
        (["deep", "wide"], {}, "'wide', which is not a program"),
        (["deep", "deep"], {}, "flat has no turn"),
        (["deep", "flat"], {"schedule": [("deep", 1)]}, "cannot have schedules"),
        (["deep", "flat"], {"own_data": {"flat": columns()}}, "or data of their own"),
    ):
        with pytest.raises(UsageError, match=why):
            by_step(tmp_path / "job", names, **given)
    rng = np.random.default_rng(1)
    names = [("deep", "flat")[int(n)] for n in rng.integers(0, 2, 4000)]
    runs = 1 + sum(a != b for a, b in pairwise(names))
    with pytest.raises(UsageError, match=f"would have {runs} turns, but at most 1024"):
        by_step(tmp_path / "job", names)
    module = Net().train()
    one = captured(module, BATCH)
    with pytest.raises(UsageError, match="number of programs is 65"):
        tallystick.save_job(
            tmp_path / "many", columns(), programs={f"p{n}": one for n in range(65)},
            programs_of_steps=[f"p{n}" for n in range(65)], steps=65,
            schedules={"lr": [0.01] * 65},
        )  # fmt: skip
