"""Callbacks between the backward pass and the update, and after each micro-batch (PROGRAM 5.22)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers as hf
from trainer_parts import Small, arguments, padded, sentences

import tallystick
from tallystick.errors import CallbackError


class Scaled(tallystick.Trainer):
    def __init__(self, *given: Any, **named: Any) -> None:
        self.scale, self.calls = 1.0, 0
        super().__init__(*given, **named)

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        return super().compute_loss(model, inputs, *given, **named) * self.scale


class Counting(Scaled):
    def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        self.calls += 1
        return super().compute_loss(model, inputs, *given, **named) * self.calls


def trainer(out: Path, event: str, act: Any, kind: type = Scaled, **given: Any) -> Any:
    def heard(self: Any, args: Any, state: Any, control: Any, **named: Any) -> None:
        act(self, state.global_step)

    callback = type("Late", (hf.TrainerCallback,), {event: heard})()
    made = kind(
        Small(), arguments(out, max_steps=4, **given), train_dataset=sentences(),
        data_collator=padded, callbacks=[callback],
    )  # fmt: skip
    callback.of = made
    return made


def halves(callback: Any, step: int) -> None:
    if step >= 2:
        callback.of.scale = 0.5


def fails(callback: Any, step: int) -> None:
    raise RuntimeError("there is no gradient")


@pytest.mark.sample(3)
@pytest.mark.parametrize("event", ["on_pre_optimizer_step", "on_optimizer_step"])
@pytest.mark.parametrize(
    ("act", "words"), [(halves, r"changes .*scale.* at step 2"), (fails, r"no gradient")]
)
def test_between_backward_pass_and_update(act: Any, words: str, event: str, tmp_path: Path) -> None:
    with pytest.raises(CallbackError, match=rf"Late\.{event} .*{words}"):
        trainer(tmp_path, event, act).train()


def test_what_the_forward_pass_of_the_update_has_left_is_seen(tmp_path: Path) -> None:
    seen: list[int] = []
    trainer(
        tmp_path, "on_pre_optimizer_step", lambda c, s: seen.append(c.of.calls), Counting
    ).train()
    assert seen[-4:] == [1, 2, 3, 4]


def test_gradients_are_refused_by_name(tmp_path: Path) -> None:
    class Clips(hf.TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, *given: Any, model: Any, **named: Any) -> None:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(0.5)

    one = Scaled(
        Small(), arguments(tmp_path, max_steps=4), train_dataset=sentences(),
        data_collator=padded, callbacks=[Clips()],
    )  # fmt: skip
    with pytest.raises(CallbackError, match=r"Clips\.on_pre_optimizer_step reads gradients"):
        one.train()


def test_micro_batches_are_no_events(tmp_path: Path) -> None:
    with pytest.raises(CallbackError, match=r"Late\.on_substep_end waits for each micro-batch"):
        trainer(tmp_path, "on_substep_end", halves, gradient_accumulation_steps=2).train()


def test_one_batch_is_no_micro_batch(tmp_path: Path) -> None:
    trainer(tmp_path, "on_substep_end", halves).train()
