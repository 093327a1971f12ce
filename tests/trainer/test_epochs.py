"""Order and ends of epochs: `fit`, `fit_lightning` and `Trainer` beside the loops as people write
them, over loaders that are not shuffled (PROGRAM 7.4, COMMITMENTS 7.7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from trainer_parts import Net, points

import tallystick
from tallystick.errors import UsageError

COUNT, EPOCHS = 11, 3


def loss(module: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return F.cross_entropy(module(x), y)


def loader(batch: int, count: int = COUNT, **given: Any) -> Any:
    return DataLoader(TensorDataset(*points(count, 1)), batch_size=batch, **given)


def made() -> tuple[Any, Any]:
    module = Net().train()
    return module, torch.optim.AdamW(module.parameters(), lr=0.02, weight_decay=0.1)


def by_hand(data: Any, accumulate: int, divisor: Callable[[int], int]) -> tuple[list[float], Any]:
    """A loop that accumulates, and steps at the end of an epoch with the batches that are there."""
    module, optimizer = made()
    found = []
    for _ in range(EPOCHS):
        batches = list(data)
        for at in range(0, len(batches), accumulate):
            group = batches[at : at + accumulate]
            optimizer.zero_grad()
            total = 0.0
            for batch in group:
                value = loss(module, batch) / divisor(len(group))
                value.backward()
                total += float(value.detach())
            optimizer.step()
            found.append(total)
    return found, module


def assert_same(module: Any, theirs: Any) -> None:
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, theirs.state_dict()[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("batch", "accumulate", "drop", "sizes"),
    [
        (4, 1, False, [4, 4, 3]),
        (4, 1, True, [4, 4]),
        (2, 2, False, [4, 4, 3]),  # a whole batch and a short one: a text 1
        (2, 2, True, [4, 4, 2]),  # one micro-batch in the place of two
        (2, 4, False, [8, 3]),
        (3, 2, True, [6, 3]),
        (16, 1, False, [11]),  # fewer records than a batch
        (4, 8, False, [11]),  # fewer batches than an update takes, the last one short
        (11, 1, False, [11]),
    ],
)
def test_a_loop_in_order(
    tmp_path: Path, batch: int, accumulate: int, drop: bool, sizes: list[int]
) -> None:
    data = loader(batch, drop_last=drop)
    losses, theirs = by_hand(data, accumulate, lambda group: group)
    module, optimizer = made()
    run = tallystick.fit(
        module, loss, data, optimizer, out=tmp_path, epochs=EPOCHS, accumulate=accumulate,
        progress=False,
    )  # fmt: skip
    np.testing.assert_allclose(run.losses, losses, rtol=1e-4)
    assert_same(module, theirs)
    found = [tallystick.records_of(tmp_path / "job", step).numbers for step in range(len(losses))]
    assert [len(numbers) for numbers in found] == sizes * EPOCHS
    taken = list(range(sum(sizes)))
    assert np.concatenate(found).tolist() == taken * EPOCHS
    assert tallystick.audit(tmp_path / "run", progress=False).accepted


@pytest.mark.parametrize("drop", [False, True])
def test_a_shuffled_loop_shuffles_each_epoch(tmp_path: Path, drop: bool) -> None:
    """The steps are those of a plain loop over the records that `records_of` names."""
    module, optimizer = made()
    data = loader(4, shuffle=True, drop_last=drop)
    run = tallystick.fit(module, loss, data, optimizer, out=tmp_path, epochs=EPOCHS, progress=False)
    x, y = points(COUNT, 1)
    theirs, other = made()
    steps = [
        tallystick.records_of(tmp_path / "job", step).numbers for step in range(len(run.losses))
    ]
    for numbers, found in zip(steps, run.losses, strict=True):
        chosen = torch.from_numpy(numbers)
        other.zero_grad()
        value = loss(theirs, (x[chosen], y[chosen]))
        value.backward()
        other.step()
        assert float(value.detach()) == pytest.approx(found, rel=1e-4)
    assert_same(module, theirs)
    each = 2 if drop else 3
    epochs = [np.concatenate(steps[e : e + each]).tolist() for e in range(0, len(steps), each)]
    assert len(epochs) == EPOCHS and len({tuple(e) for e in epochs}) == EPOCHS
    assert all(len(set(e)) == len(e) == (8 if drop else COUNT) for e in epochs)


@pytest.mark.parametrize(("held", "batch"), [(10, 4), (3, 4), (8, 4), (9, 8)])
def test_validation_is_over_every_record(tmp_path: Path, held: int, batch: int) -> None:
    """Each record counts alike, whatever the sizes of the batches."""
    module = Net().train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    validation = DataLoader(TensorDataset(*points(held, 2)), batch_size=batch)
    run = tallystick.fit(
        module, loss, loader(4), optimizer, out=tmp_path, epochs=2, validation=validation,
        best=True, progress=False,
    )  # fmt: skip
    module.eval()
    with torch.no_grad():
        each = [
            float(loss(module, (x[None], y[None]))) for x, y in zip(*points(held, 2), strict=True)
        ]
    assert [step for step, _ in run.validation] == [3, 6]
    for _, value in run.validation:
        assert value == pytest.approx(sum(each) / held, rel=1e-5)


def test_the_best_weights_of_a_job_of_short_passes(tmp_path: Path) -> None:
    module = Net().train()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    validation = DataLoader(TensorDataset(*points(10, 2)), batch_size=4)
    run = tallystick.fit(
        module, loss, loader(4), optimizer, out=tmp_path, epochs=20, validation=validation,
        evaluate_every=2, stop=tallystick.StopRule(patience=2), best=True, progress=False,
    )  # fmt: skip
    losses = [value for _, value in run.validation]
    best = int(np.argmin(losses))
    assert len(losses) == best + 3 < 30
    module.eval()
    with torch.no_grad():
        value = float(loss(module, points(10, 2)))
    assert value == pytest.approx(losses[best], rel=1e-4)
    assert tallystick.audit(tmp_path / "run", progress=False).accepted


def test_an_epoch_of_no_batch_is_refused(tmp_path: Path) -> None:
    module, optimizer = made()
    with pytest.raises(UsageError, match="fewer than a batch of 16"):
        tallystick.fit(module, loss, loader(16, drop_last=True), optimizer, out=tmp_path, epochs=1)


def test_what_is_said_of_the_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, told in (
        ({"shuffle": True}, "The 11 records are shuffled anew in each epoch, by the job's seed"),
        ({"shuffle": False}, "The 11 records are read in their own order; an epoch has 3 steps; "
         "its last batch has 3 of 4 records. 2 steps."),
        ({"drop_last": True}, "an epoch has 2 steps and leaves out 3 records. 2 steps."),
    ):  # fmt: skip
        module, optimizer = made()
        tallystick.fit(
            module, loss, loader(4, **given), optimizer, out=tmp_path / str(len(told)), steps=2,
            progress=False,
        )  # fmt: skip
        assert told in " ".join(capsys.readouterr().err.split())


def test_a_short_batch_under_logs_is_refused(tmp_path: Path) -> None:
    module, optimizer = made()
    given: dict[str, Any] = {"epochs": 1, "contract": "replay/1;b=26", "progress": False}
    with pytest.raises(UsageError, match="A short batch needs a second program"):
        tallystick.fit(module, loss, loader(4), optimizer, out=tmp_path, **given)


# -- Lightning and transformers --------------------------------------------------------------------
@pytest.mark.parametrize(("batch", "drop"), [(2, False), (2, True), (3, False)])
def test_lightning_divides_the_last_group_by_all(tmp_path: Path, batch: int, drop: bool) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return loss(self.net, batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    ours, theirs = Module().train(), Module().train()
    theirs.load_state_dict(ours.state_dict())
    data = loader(batch, drop_last=drop)
    tallystick.fit_lightning(
        ours, data, out=tmp_path / "a", max_epochs=EPOCHS, accumulate_grad_batches=4, progress=False
    )
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accumulate_grad_batches=4, accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
        default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(theirs, data)
    assert_same(ours, theirs)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("batch", "accumulate", "drop"), [(4, 1, False), (2, 4, False), (4, 3, False), (2, 4, True)]
)
def test_transformers_in_sequence(tmp_path: Path, batch: int, accumulate: int, drop: bool) -> None:
    hf = pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")
    from trainer_parts import arguments, gpt2, padded, sentences

    given: dict[str, Any] = {
        "per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulate,
        "dataloader_drop_last": drop, "train_sampling_strategy": "sequential",
        "num_train_epochs": 2, "max_steps": -1,
    }  # fmt: skip
    fields = {f.name for f in __import__("dataclasses").fields(hf.TrainingArguments)}
    if "train_sampling_strategy" not in fields:
        pytest.skip("transformers before version 5 has no sequential sampler")
    trained = []
    for kind in (tallystick.Trainer, hf.Trainer):
        args = arguments(tmp_path, **given)
        one = kind(gpt2(), args, train_dataset=sentences(COUNT), data_collator=padded)
        one.train()
        trained.append([e["loss"] for e in one.state.log_history if "loss" in e])
    assert len(trained[0]) == len(trained[1]) > 1
    np.testing.assert_allclose(trained[0], trained[1], rtol=2e-4)
