"""Callbacks that change what the job does not have end the run, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")
pytest.importorskip("accelerate", reason="accelerate is not installed (extra `hf`)")

import transformers as hf
from trainer_parts import Small, arguments, padded, sentences

import tallystick
from tallystick.errors import CallbackError

Act = Callable[[Any, Any, Any], None]  # of the arguments, the control and what a callback is given


def callback(name: str, event: str, act: Act, step: int = 2) -> Any:
    """A callback of class `name` that acts at an event of one step, if the losses are positive: no
    job can know that before it."""

    def heard(self: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
        losses = [logs["loss"] for logs in state.log_history if "loss" in logs]
        if state.global_step == step and all(loss > 0.0 for loss in losses):
            act(args, control, given)

    return type(name, (hf.TrainerCallback,), {event: heard})()


def trainer(out: Path, *callbacks: Any, kind: type = tallystick.Trainer, **given: Any) -> Any:
    model = Small()
    model.config = hf.PretrainedConfig()  # type: ignore[assignment]
    return kind(
        model, arguments(out, **{"max_steps": 4, **given}), train_dataset=sentences(),
        data_collator=padded, callbacks=list(callbacks),
    )  # fmt: skip


def rate(args: Any, control: Any, given: Any) -> None:
    given["optimizer"].param_groups[0]["lr"] = 1e-5


def decay(args: Any, control: Any, given: Any) -> None:
    given["optimizer"].param_groups[1]["weight_decay"] = 0.5


def frozen(args: Any, control: Any, given: Any) -> None:
    given["model"].transformer.wte.weight.requires_grad_(False)


def clamped(args: Any, control: Any, given: Any) -> None:
    given["model"].transformer.wte.weight.data.clamp_(-1e-3, 1e-3)


def clipping(args: Any, control: Any, given: Any) -> None:
    args.max_grad_norm = 0.1


def new_group(args: Any, control: Any, given: Any) -> None:
    given["optimizer"].param_groups[0]["params"].pop()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("act", "words"),
    [
        (rate, r"param_groups\[0\]\['lr'\] \(0\.0075 → 1e-05\)"),
        (decay, r"param_groups\[1\]\['weight_decay'\] \(0\.0 → 0\.5\)"),
        (frozen, r"requires_grad of transformer\.wte\.weight \(True → False\)"),
        (clamped, r"the parameter transformer\.wte\.weight"),
        (clipping, r"args\.max_grad_norm \(1\.0 → 0\.1\)"),
        (new_group, r"param_groups\[0\]\['params'\]"),
    ],
)
def test_a_change_ends_the_run_by_name(act: Act, words: str, tmp_path: Path) -> None:
    event = "on_log" if act is clipping else "on_step_begin" if act is frozen else "on_step_end"
    one = trainer(tmp_path, callback("Meddles", event, act))
    with pytest.raises(CallbackError, match=rf"Meddles\.{event} changes .*{words}.*at step 2"):
        one.train()
    assert not (tmp_path / "run" / "commitment.json").exists()


class Hears(hf.TrainerCallback):  # type: ignore[misc]
    """Notes what it hears, and breaks off once."""

    def __init__(self, breaks: int | None = None) -> None:
        self.events: list[Any] = []
        self.breaks = breaks

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.events.append(("begin", state.global_step, round(state.epoch, 3)))

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        rates = [group["lr"] for group in given["optimizer"].param_groups]
        self.events.append((state.global_step, round(state.epoch, 3), rates[0]))
        if state.global_step == self.breaks:
            raise RuntimeError("the power goes out")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any]]:
    """A run whose callback only listens, and what it heard."""
    one = trainer(tmp_path_factory.mktemp("whole"), heard := Hears())
    one.train()
    return one.run, heard.events


def test_a_stop_leaves_an_unsigned_run_that_goes_on(whole: Any, tmp_path: Path) -> None:
    def asks(args: Any, control: Any, given: Any) -> None:
        control.should_training_stop = True

    with pytest.raises(CallbackError, match=r"Stops\.on_step_end asks to stop at step 2"):
        trainer(tmp_path / "run", callback("Stops", "on_step_end", asks)).train()
    assert not (tmp_path / "run" / "run" / "commitment.json").exists()
    again = trainer(tmp_path / "run")
    again.train()
    assert again.run.run_root == whole[0].run_root


def test_a_stop_at_the_last_step_is_the_end(tmp_path: Path) -> None:
    def asks(args: Any, control: Any, given: Any) -> None:
        control.should_training_stop = True

    one = trainer(tmp_path, callback("Stops", "on_step_end", asks, step=4))
    one.train()
    assert one.run.finished


class Leans(tallystick.Trainer):
    """A loss that reads a tensor beside the model."""

    teacher: Any = None

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        return super().compute_loss(model, inputs, *given, **named) * self.teacher.sum()


def test_a_tensor_that_the_loss_reads_may_not_change(tmp_path: Path) -> None:
    held = torch.ones(2)

    def act(args: Any, control: Any, given: Any) -> None:
        held.numpy()[0] = 2.0

    one = trainer(tmp_path, callback("Teaches", "on_step_end", act), kind=Leans)
    one.teacher = held
    with pytest.raises(CallbackError, match=r"Teaches\.on_step_end changes the tensor teacher"):
        one.train()


def test_a_module_that_the_loss_calls_may_not_change(tmp_path: Path) -> None:
    class Taught(tallystick.Trainer):
        teacher: Any = None

        def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
            loss = super().compute_loss(model, inputs, *given, **named)
            return loss * self.teacher(torch.ones(1, 2)).sum()

    class Follows(hf.TrainerCallback):  # type: ignore[misc]
        """The teacher is an average of the model."""

        def __init__(self, teacher: Any) -> None:
            self.teacher = teacher

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            with torch.no_grad():
                self.teacher.bias.lerp_(given["model"].transformer.ln_f.bias[:1], 0.5)

    teacher = torch.nn.Linear(2, 1).requires_grad_(False)
    one = trainer(tmp_path, Follows(teacher), kind=Taught)
    one.teacher = teacher
    with pytest.raises(
        CallbackError, match=r"Follows\.on_step_end changes the tensor teacher\.bias"
    ):
        one.train()


def test_wishes_that_change_no_number_are_announced_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def asks(args: Any, control: Any, given: Any) -> None:
        control.should_evaluate = control.should_save = True

    one = trainer(tmp_path, callback("Asks", "on_step_end", asks))
    one.train()
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("Asks asks for validation at step 2") == 1
    assert told.count("Asks asks for a stored state at step 2") == 1


def test_what_callbacks_hear_after_a_resume(whole: Any, tmp_path: Path) -> None:
    _, events = whole
    assert events[0] == ("begin", 0, 0.0)
    assert [event[0] for event in events[1:]] == [1, 2, 3, 4]
    first, second = Hears(breaks=3), Hears()
    with pytest.raises(RuntimeError):
        trainer(tmp_path / "run", first).train()
    trainer(tmp_path / "run", second).train()
    assert second.events[0] == ("begin", 0, 0.0)
    begun = second.events[1][0] - 1
    # From the state on from which the run goes on, they hear what an unbroken run would tell them.
    assert second.events[1:] == events[1 + begun :]


# -- numbers of Python -------------------------------------------------------------------------
class Criterion:
    """What a loss beside the model reads."""

    def __init__(self) -> None:
        self.alpha, self.calls = 1.0, 0


class Weighs(tallystick.Trainer):
    criterion: Any = None

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        self.criterion.calls += 1
        weight = getattr(self.state, "weight", 1.0)
        loss = super().compute_loss(model, inputs, *given, **named)
        return loss * self.criterion.alpha * WEIGHTS["of all"] * weight


WEIGHTS = {"of all": 1.0}


def weighs(out: Path, *callbacks: Any, **given: Any) -> Any:
    one = trainer(out, *callbacks, kind=Weighs, **given)
    one.criterion = Criterion()
    return one


def in_global(one: Any, given: Any) -> None:
    WEIGHTS["of all"] = 0.5


NUMBERS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "criterion": (lambda one, given: setattr(one.criterion, "alpha", 0.5), r"alpha.*1\.0 → 0\.5"),
    "global": (in_global, r"WEIGHTS.*1\.0 → 0\.5"),
    "state": (lambda one, given: setattr(one.state, "weight", 0.5), r"weight.*nothing → 0\.5"),
    "layer": (
        lambda one, given: setattr(given["model"].transformer.h[0].attn, "scaling", 0.25),
        r"scaling.*0\.5 → 0\.25",
    ),
    "layer of torch": (
        lambda one, given: setattr(given["model"].transformer.ln_f, "eps", 1e-2),
        r"ln_f\.eps.*1e-05 → 0\.01",
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_the_loss_reads_may_not_change(name: str, tmp_path: Path) -> None:
    act, words = NUMBERS[name]
    one = weighs(tmp_path)
    one.add_callback(callback("Sets", "on_step_end", lambda args, control, given: act(one, given)))
    try:
        with pytest.raises(CallbackError, match=rf"Sets\.on_step_end changes .*{words}.*at step 2"):
            one.train()
    finally:
        WEIGHTS["of all"] = 1.0
    assert not (tmp_path / "run" / "commitment.json").exists()


class Books(hf.TrainerCallback):  # type: ignore[misc]
    """Its own bookkeeping, and what the loss reaches but does not read."""

    def __init__(self, one: Any) -> None:
        self.one, self.steps, self.losses = one, 0, []

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.steps += 1
        self.one.criterion.calls = 0
        state.noted = self.steps
        given["model"].config.noted = self.steps
        given["model"].noted = [self.steps]

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.losses.append(logs.get("loss"))
        state.log_history.append({"own": 1.0})

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.one.criterion.alpha = 2.0


def test_bookkeeping_is_no_change(tmp_path: Path) -> None:
    one = weighs(tmp_path, logging_steps=1, max_steps=2)
    one.add_callback(books := Books(one))
    one.train()
    assert one.run.finished
    assert books.steps == 2


def test_modes_that_the_loop_sets_again_are_no_change(whole: Any, tmp_path: Path) -> None:
    """transformers calls `model.train()` before each step."""

    def act(args: Any, control: Any, given: Any) -> None:
        given["model"].eval()
        given["model"].transformer.ln_f.train()

    one = trainer(tmp_path / "run", callback("Evaluates", "on_step_end", act))
    one.train()
    assert one.run.run_root == whole[0].run_root
