"""Losses that read the number of the step or of the epoch, beside the loops that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")
pytest.importorskip("accelerate", reason="accelerate is not installed (extra `hf`)")

import transformers as hf
from trainer_parts import BATCH, RECORDS, arguments, gpt2, padded, sentences

import tallystick
from tallystick.commit.order import batch_indices

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
            gpt2(), arguments(out, **given), train_dataset=sentences(), data_collator=padded
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


def test_the_number_of_the_step_is_that_of_transformers(tmp_path: Path) -> None:
    ours, theirs = both(tmp_path, Weighted, max_steps=4)
    print(ours, theirs)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)
    assert ours[3] > 3 * ours[0]
