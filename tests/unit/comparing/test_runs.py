"""Runs that differ in one planted thing each: where they first differ, and why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import nn

import tallystick
from tallystick.cli.main import run as command
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import Job
from tallystick.run.show.summary import RunSummary
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal

RECORDS, BATCH = 20, 4


class Net(nn.Module):
    def __init__(self, p: float = 0.25, act: str = "relu", seed: int = 1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.drop, self.act = nn.Dropout(p), getattr(torch, act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.drop(self.act(self.first(x))))
        return result


def records(seed: int = 5, count: int = RECORDS) -> dict[str, Any]:
    made = np.random.default_rng(seed)
    return {
        "x": made.standard_normal((count, 6), dtype=np.float32),
        "y": made.integers(0, 3, count),
    }


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def trained(
    place: Path,
    net: Net | None = None,
    optimizer: Any = None,
    data: dict[str, Any] | None = None,
    batch: int = BATCH,
    contract: str = "ordered/1",
    short: int = 0,
    fn: Callable[..., torch.Tensor] = loss,
    **asked: Any,
) -> Path:
    """The directory of a finished run."""
    made = data or records()
    net = net or Net()
    optimizer = optimizer or tallystick.AdamW(lr=0.01)

    def captured(size: int) -> tallystick.Capture:
        example = {
            "x": torch.zeros(size, 6),
            "y": torch.zeros(size, dtype=torch.int64),
        }
        return tallystick.capture(net, fn, example, optimizer, contract=contract)

    asked = {"steps": 8, "seed": 3, "checkpoint_interval": 4} | asked
    if short:
        asked["short"] = captured(short)
    job = captured(batch).save_job(place / "job", made, compare_first_step=False, **asked)
    return tallystick.train(job, place / "run", progress=False, threads=1).directory


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("base"))


def test_one_run_is_equal_to_its_repetition(base: Path, tmp_path: Path) -> None:
    again = trained(tmp_path)
    assert tallystick.diff(base, again).equal


def other_rows(data: dict[str, Any]) -> dict[str, Any]:
    x = data["x"].copy()
    x[:, 0] += 1
    return {**data, "x": x}


def doubled(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return 2 * loss(model, batch)


PLANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "seed": ("seed", {"seed": 4}),
    "rate": ("rate", {"optimizer": tallystick.AdamW(lr=0.02)}),
    "rate from a step on": (
        "rate",
        {"optimizer": tallystick.AdamW(lr="lr"), "schedules": {"lr": [0.01] * 5 + [0.005] * 3}},
    ),
    "weight decay": ("setting", {"optimizer": tallystick.AdamW(lr=0.01, weight_decay=0.3)}),
    "betas": ("setting", {"optimizer": tallystick.AdamW(lr=0.01, betas=(0.8, 0.999))}),
    "another optimizer": ("setting", {"optimizer": tallystick.SGD(lr=0.01)}),
    "dropout": ("dropout", {"net": lambda: Net(p=0.5)}),
    "no dropout": ("dropout", {"net": lambda: Net(p=0.0)}),
    "weights": ("weights", {"net": lambda: Net(seed=2)}),
    "activation": ("program", {"net": lambda: Net(act="tanh")}),
    "loss": ("program", {"fn": doubled}),
    "order": ("data order", {"order": "sequential"}),
    "records": ("data", {"data": other_rows(records())}),
    "batch size": ("batch size", {"batch": 2}),
    "contract": ("rounding", {"contract": "rounded/1"}),
    "more steps": ("steps", {"steps": 9}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_named(name: str, base: Path, tmp_path: Path) -> None:
    cause, changed = PLANTED[name]
    if "net" in changed:
        changed = {**changed, "net": changed["net"]()}
    if name == "rate from a step on":
        same = {**changed, "schedules": {"lr": [0.01] * 8}}
        base = trained(tmp_path / "first", **same)
    found = tallystick.diff(base, trained(tmp_path / "second", **changed))
    assert not found.equal and found.cause is not None and found.first is not None
    assert found.cause.kind == cause, (found.causes, found.first)
    if name == "rate from a step on":
        assert found.first.step == 5 and found.first.elements is not None
        assert [found.first.elements.first, found.first.elements.second] == pytest.approx(
            [0.01, 0.005]
        )
    if name == "more steps":
        assert found.first.step == 8
    if name in ("dropout", "activation", "no dropout", "loss"):
        assert found.programs


def test_the_last_batch_is_named(tmp_path: Path) -> None:
    data = records(count=10)
    dropped = trained(tmp_path / "a", data=data, epoch_end="drop")
    run_on = trained(tmp_path / "b", data=data)
    short = trained(tmp_path / "c", data=data, epoch_end="short", short=2)
    for other in (run_on, short):
        found = tallystick.diff(dropped, other)
        assert found.cause is not None and found.first is not None
        assert (found.cause.kind, found.first.step) == ("last batch", 2), found.causes


def attacked(attack: str, base: Path, out: Path) -> Path:
    """A run of the same job by one of the attack files."""
    assert command(["attack", attack, str(base / "job"), "--out", str(out / "cheat")]) == 0
    return out / "cheat"


ATTACKS = {
    "low-precision": "precision",
    "lie-output": "flipped bit",  # a number doubled, which is one bit of its exponent here
    "data-poisoning": "data",
    "wrong-learning-rate": "rate",
    "wrong-seed": "seed",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_cheat_that_plays_is_seen_at_its_operator(
    attack: str, base: Path, tmp_path: Path
) -> None:
    found = tallystick.diff(base, attacked(attack, base, tmp_path), as_attack=["B"])
    assert not found.equal and found.cause is not None and found.first is not None
    assert found.cause.kind == ATTACKS[attack], (found.causes, found.first)
    assert found.first.operator[0] and found.first.elements is not None, found.first


UNPLAYED = (
    "low-precision",
    "lie-output",
    "data-poisoning",
    "wrong-learning-rate",
    "skipped-steps",
    "padded-steps",
    "stale-optimizer-state",
    "lie-optimizer-state",
)


@pytest.mark.parametrize("attack", UNPLAYED)
def test_a_run_that_does_not_follow_its_job_is_seen(
    attack: str, base: Path, tmp_path: Path
) -> None:
    cheat = attacked(attack, base, tmp_path)
    found = tallystick.diff(base, cheat)
    assert not found.equal and found.causes[0].kind == "record", found.causes
    sentence, step = found.causes[0].sentence, found.first.step if found.first else None
    assert sentence.startswith("B has recorded the loss "), sentence
    # What is false may lie before: a loss is the first number of it that a record has.
    assert sentence.endswith(f"The run has left its job in step {step} or before.")
    assert found.notices == (
        "The directory of B declares a cheat. With `--as-attack B` a comparison plays it, and can "
        "name the operator.",
    )
    # A stored state is not an operator's result, and no bit of it was flipped.
    assert not [c for c in found.causes if c.kind in ("flipped bit", "precision")], found.causes
    assert "From equal inputs" not in " ".join(c.sentence for c in found.causes)
    there = tallystick.diff(cheat, base)
    assert there.first is not None and found.first is not None
    assert there.first.step == found.first.step
    # The stored states of the cheat show its values.
    ours, theirs = found.first.elements, there.first.elements
    assert ours is not None and theirs is not None
    assert (ours.index, ours.first_bits, ours.second_bits) == (
        theirs.index,
        theirs.second_bits,
        theirs.first_bits,
    )


PLAYED = {
    "lie-loss-curve": ("record", "B has recorded another loss of step "),
    "unreproducible-root": ("record", "B has recorded another state after step "),
    "skipped-steps": ("outside", " differs before step "),
    "lie-optimizer-state": ("result", "From equal inputs 1 of "),
    "reordered-data": ("data order", "Step 0 reads other records of the job, or the same "),
    "data-poisoning": ("data", "B reads a record that the job does not have, or reads one more "),
}


@pytest.mark.parametrize("attack", PLAYED)
def test_a_cheat_that_plays_is_named_by_what_it_shows(
    attack: str, base: Path, tmp_path: Path
) -> None:
    found = tallystick.diff(base, attacked(attack, base, tmp_path), as_attack=["B"])
    assert found.cause is not None and found.first is not None
    kind, words = PLAYED[attack]
    assert found.cause.kind == kind and words in found.cause.sentence, found.causes


def test_jobs_that_differ_in_what_no_step_reads(base: Path, tmp_path: Path) -> None:
    """Two honest runs: nothing is said of their records."""
    other = trained(tmp_path, checkpoint_interval=2)
    for pair in ((base, other), (other, base)):
        found = tallystick.diff(*pair)
        assert not found.equal and found.fields and not found.causes and found.first is None
        assert found.notices == (
            "In none of the 8 steps do A and B read or compute anything different.",
        )


def test_a_false_root_is_seen_behind_an_equal_one(base: Path, tmp_path: Path) -> None:
    """One root of the record was rewritten, with all that follows it: the last one is the same."""
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    store = RunStore(copy)
    job = store.job()
    content = store.journal(job)
    (copy / "journal").unlink()
    for file in (copy / "checkpoints").iterdir():
        file.unlink()
    written = Journal.open(copy / "journal", job.digest)
    roots = dict(content.checkpoints)
    for step, bits in enumerate(content.losses):
        written.loss(step, bits)
        if step + 1 in roots:
            written.checkpoint(step + 1, bytes(32) if step + 1 == 4 else roots[step + 1])
    written.close()
    for pair in ((base, copy), (copy, base)):
        found = tallystick.diff(*pair)
        assert not found.equal and [cause.kind for cause in found.causes] == ["record"]
        assert "another state after step 3" in found.causes[0].sentence
        name = "B" if pair[1] == copy else "A"
        assert found.notices[0] == (
            f"To name the operator, a comparison needs the digests of steps 0 to 3 of {name}. "
            "`tallystick train --trace 0:4` records them."
        )


def test_arguments_that_a_comparison_would_ignore(base: Path) -> None:
    for asked in ({"threads": 2}, {"device": "cuda"}):
        with pytest.raises(UsageError, match="only read"):
            tallystick.diff(base / "job", base / "job", **asked)
    with pytest.raises(UsageError, match="on the CPU"):
        tallystick.diff(base, base, as_attack=["B"], device="cuda")


def test_a_bit_flipped_in_a_stored_state_is_seen(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    file = max((copy / "checkpoints").iterdir())
    data = bytearray(file.read_bytes())
    data[-10] ^= 1 << 4
    file.write_bytes(bytes(data))
    found = tallystick.diff(base, copy)
    assert found.cause is not None and found.first is not None
    assert found.first.elements is not None and found.first.elements.flipped is not None
    assert [cause.kind for cause in found.causes] == ["flipped bit", "record"]


def test_a_torn_journal_is_named(base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(base, copy)
    journal = copy / "journal"
    whole = journal.read_bytes()
    # In the end's record, and in that of a step.
    for place, cause in ((len(whole) - 100, None), (len(whole) // 2, "steps")):
        data = bytearray(whole)
        data[place] ^= 1
        journal.write_bytes(bytes(data))
        found = tallystick.diff(base, copy)
        assert found.equal == (cause is None) and "do not fit" in found.notices[0]
        assert (found.cause.kind if found.cause else None) == cause


def test_what_cannot_be_compared_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a job, a run or a trace"):
        tallystick.diff(base, tmp_path)
    with pytest.raises(UsageError, match="no run 'C'"):
        tallystick.diff(base, base, as_attack=["C"])
    os.makedirs(tmp_path / "begun")
    assert issubclass(CannotCheckError, Exception)


def test_the_recipes_are_compared_too(logreg_run: RunSummary, mlp_run: RunSummary) -> None:
    found = tallystick.diff(logreg_run.directory, mlp_run.directory)
    assert not found.equal and found.first is not None and found.first.step == 0


def test_a_run_is_no_cheat_by_its_own_word(base: Path, mlp_job: Job) -> None:
    with pytest.raises(UsageError):
        tallystick.diff(base, base, as_attack=["A"])
