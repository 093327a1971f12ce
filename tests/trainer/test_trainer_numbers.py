"""Losses that read the number of the step or of the epoch, beside the loops that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")
pytest.importorskip("accelerate", reason="accelerate is not installed (extra `hf`)")

import transformers as hf
from trainer_parts import BATCH, RECORDS, Small, arguments, padded, sentences

import tallystick
from tallystick.commit.order import batch_indices
from tallystick.errors import UsageError

UPDATES = RECORDS // BATCH  # of an epoch


class Order:
    """A sampler: each pass gives the records of the job's next epoch."""

    def __init__(self, seed: int) -> None:
        self.seed, self.epoch = seed, 0

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Any:
        steps = range(self.epoch * UPDATES, (self.epoch + 1) * UPDATES)
        self.epoch += 1
        found = [batch_indices(self.seed, RECORDS, step, BATCH).tolist() for step in steps]
        return iter([i for batch in found for i in batch])


class Theirs(hf.Trainer):  # type: ignore[misc]
    """transformers' Trainer over the job's order."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return Order(self.args.seed)


def losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def both(out: Path, kind: type, **given: Any) -> tuple[list[float], list[float]]:
    """The losses of ours and of theirs, on the same batches."""
    found = []
    for base in (tallystick.Trainer, Theirs):
        trainer = type("T", (kind, base), {})(
            Small(), arguments(out, **given), train_dataset=sentences(), data_collator=padded
        )
        trainer.train()
        found.append(losses(trainer))
    return found[0], found[1]


class Weighted:
    """A loss whose weight is a function of the trainer's state."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **named: Any) -> Any:
        loss = super().compute_loss(model, inputs, *args, **named)  # type: ignore[misc]
        return loss * self.weight()

    def weight(self) -> Any:
        return 1 + self.state.global_step  # type: ignore[attr-defined]


class ByEpoch(Weighted):
    def weight(self) -> Any:
        state = self.state  # type: ignore[attr-defined]
        return (0.5 + state.epoch) * (state.max_steps + state.num_train_epochs) / 10


class Branches(Weighted):
    """Structures: another loss from an epoch on, and a part of it every fourth step."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **named: Any) -> Any:
        loss = super().compute_loss(model, inputs, *args, **named)
        state = self.state  # type: ignore[attr-defined]
        if state.global_step % 4 == 0:
            loss = loss + 0.01 * model.transformer.wte.weight.square().sum()
        if state.epoch >= 1:
            loss = loss.square()
        if state.global_step % 10 == 0:
            self.log({"seen": state.global_step})  # type: ignore[attr-defined]
        return loss

    def weight(self) -> Any:
        return min(1.0, (1 + self.state.global_step) / 5)  # type: ignore[attr-defined]


def test_the_number_of_the_step_is_that_of_transformers(tmp_path: Path) -> None:
    """Without it the losses were 2.70, 2.87, 2.81 and 2.94 where theirs are 2.70, 5.74, 8.43, 11.8:
    the step was 0 in all of them."""
    ours, theirs = both(tmp_path, Weighted, max_steps=4)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)
    assert ours[3] > 3 * ours[0]


@pytest.mark.parametrize("kind", [ByEpoch, Branches])
def test_epochs_and_branches_are_those_of_transformers(tmp_path: Path, kind: type) -> None:
    ours, theirs = both(tmp_path, kind, max_steps=11, learning_rate=1e-3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert tallystick.audit(tmp_path / "run", progress=False).accepted


def test_a_validation_that_reads_the_step_is_refused_by_name(tmp_path: Path) -> None:
    trainer = type("T", (Weighted, tallystick.Trainer), {})(
        Small(), arguments(tmp_path, eval_strategy="steps", eval_steps=2),
        train_dataset=sentences(), eval_dataset=sentences(4, 1), data_collator=padded,
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"number of the step \(.*validation"):
        trainer.train()


class Logs(Weighted):
    """A branch of a validation loss that only logs."""

    def weight(self) -> Any:
        if self.state.global_step % 4 == 0:  # type: ignore[attr-defined]
            self.log({"seen": self.state.global_step})  # type: ignore[attr-defined]
        return min(1.0, self.state.epoch + 0.7)  # type: ignore[attr-defined]


def test_a_validation_that_is_the_same_in_each_pass(tmp_path: Path) -> None:
    trainer = type("T", (Logs, tallystick.Trainer), {})(
        Small(), arguments(tmp_path, eval_strategy="steps", eval_steps=2, max_steps=5),
        train_dataset=sentences(), eval_dataset=sentences(4, 1), data_collator=padded,
    )  # fmt: skip
    trainer.train()
    assert [step for step, _ in trainer.run.validation] == [2, 4]
    plain = tallystick.Trainer(
        trainer.model, arguments(tmp_path), eval_dataset=sentences(4, 1), data_collator=padded
    )
    found = plain.evaluate()["eval_loss"]  # after step 5, and the weight was 1 in both passes
    assert trainer.run.validation[-1][1] == pytest.approx(found, rel=0.02)


def test_the_state_is_the_trainers_own_again(tmp_path: Path) -> None:
    trainer = type("T", (Branches, tallystick.Trainer), {})(
        Small(), arguments(tmp_path, max_steps=3), train_dataset=sentences(), data_collator=padded
    )
    trainer.train()
    assert type(trainer.state.global_step) is int and trainer.state.global_step == 3
    assert all("seen" not in entry for entry in trainer.state.log_history)
