"""The rates that callbacks and the log see are the job's own numbers, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers as hf
from trainer_parts import Small, arguments, padded, sentences

import tallystick
from tallystick.job.job_file import load_job

STEPS = 5


class Rates(hf.TrainerCallback):  # type: ignore[misc]
    """Where transformers' callbacks look for a rate; one may meddle before the first step."""

    def __init__(self, meddle: bool = False) -> None:
        self._meddle = meddle
        self.scheduler: list[list[float]] = []
        self.optimizer: list[list[float]] = []
        self.logged: list[float] = []

    def on_train_begin(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        if self._meddle:
            for group in optimizer.param_groups:
                group["lr"] = 0.125

    def on_step_begin(self, *_: Any, lr_scheduler: Any, optimizer: Any, **__: Any) -> None:
        self.scheduler.append(list(lr_scheduler.get_last_lr()))
        self.optimizer.append([group["lr"] for group in optimizer.param_groups])

    def on_log(self, *_: Any, logs: Any, **__: Any) -> None:
        if "loss" in logs:
            self.logged.append(logs["learning_rate"])


def _committed(out: Path, step: int) -> list[float]:
    job = load_job(out / "job")
    names = sorted(name for name in job.scalars if name == "lr" or name.startswith("lr."))
    return [job.terms.scalar(name, step) for name in names]


def _check(out: Path, heard: Rates, first: int = 0, steps: int = STEPS) -> None:
    committed = [_committed(out, step) for step in range(first, steps)]
    assert all(committed) and heard.scheduler == heard.optimizer == committed
    assert heard.logged == [rates[0] for rates in committed]


def _trainer(out: Path, heard: Rates, optimizers: Any = (None, None), **given: Any) -> Any:
    return tallystick.Trainer(
        given.pop("model", None) or Small(), arguments(out, max_steps=STEPS, **given),
        train_dataset=sentences(), data_collator=padded, callbacks=[heard], optimizers=optimizers,
    )  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "given",
    [
        {"lr_scheduler_type": "linear"},
        {"lr_scheduler_type": "linear", "warmup_steps": 2},
        {"lr_scheduler_type": "cosine", "warmup_steps": 1},
        {"lr_scheduler_type": "constant"},
        {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 3},
        {"lr_scheduler_type": "linear", "optim": "adafactor"},
        {"lr_scheduler_type": "inverse_sqrt", "warmup_steps": 2},
        {"lr_scheduler_type": "linear", "optim": "sgd", "weight_decay": 0.0},
    ],
)
def test_every_scheduler(given: dict[str, Any], tmp_path: Path) -> None:
    heard = Rates()
    _trainer(tmp_path, heard, **given).train()
    _check(tmp_path, heard)


def test_what_a_callback_changes_before_the_first_step(tmp_path: Path) -> None:
    """The job is made after `on_train_begin`: its first rate is the changed one, and so is what
    the log says."""
    heard = Rates(meddle=True)
    _trainer(tmp_path, heard, lr_scheduler_type="constant").train()
    _check(tmp_path, heard)
    assert heard.logged[0] == 0.125


@pytest.mark.parametrize("kind", ["step", "epoch"])
def test_a_scheduler_of_ones_own(kind: str, tmp_path: Path) -> None:
    """Over groups with rates of their own; a second call makes the same job."""
    model = Small()
    first, *rest = model.parameters()
    optimizer = torch.optim.AdamW([{"params": [first], "lr": 0.02}, {"params": rest}], lr=0.01)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    if kind == "epoch":
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, [lambda n: 1.0 / (1 + n // 3), lambda n: 0.5 ** (n // 3)]
        )
    before = [group["lr"] for group in optimizer.param_groups]
    heard = Rates()
    trainer = _trainer(tmp_path, heard, (optimizer, scheduler), model=model)
    trainer.train()
    _check(tmp_path, heard)
    assert [group["lr"] for group in optimizer.param_groups] == before
    assert scheduler.get_last_lr() == before
    assert len({tuple(rates) for rates in heard.optimizer}) > 1


class Pauses(hf.TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 3:
            raise RuntimeError("the power goes out")


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    heard = Rates()
    trainer = _trainer(tmp_path, heard, warmup_steps=2)
    trainer.add_callback(Pauses())
    with pytest.raises(RuntimeError, match="power"):
        trainer.train()
    assert heard.optimizer == [_committed(tmp_path, step) for step in range(3)]
    again = Rates()
    _trainer(tmp_path, again, warmup_steps=2).train()
    first = STEPS - len(again.optimizer)
    assert 0 <= first <= 3
    _check(tmp_path, again, first)
