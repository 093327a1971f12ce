"""A LightningModule's hooks that freeze, or write the groups, are rehearsed and carried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import measured
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import tallystick
from tallystick.errors import UsageError
from tallystick.job.job_file import load_job

RECORDS, SIZE, EPOCHS, PER_EPOCH = 22, 4, 3, 6


class Net(nn.Module):
    """Of the form of a LightningModule."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)
        self.kept: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class Tuned(Net):
    """Frozen at first; then the rate and the decay of an epoch and of a step."""

    def on_train_start(self) -> None:
        self.body.requires_grad_(False)
        self.log("frozen", 1.0)  # type: ignore[operator]

    def on_train_epoch_start(self) -> None:
        optimizer = self.optimizers()  # type: ignore[operator]
        optimizer.param_groups[0]["weight_decay"] = 1e-3 * (1 + self.current_epoch)  # type: ignore[operator]
        if self.current_epoch == 1:
            self.body.requires_grad_(True)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.global_step == 14 and batch_idx == 2:
            self.trainer.optimizers[0].param_groups[0]["lr"] *= 0.1  # type: ignore[union-attr, index]
            self.head.bias.requires_grad_(False)


def data() -> TensorDataset:
    x = torch.randn(RECORDS, 6, generator=torch.Generator().manual_seed(6))
    return TensorDataset(x, x[:, :3].argmax(1))


def loader() -> DataLoader[Any]:
    return DataLoader(data(), batch_size=SIZE, shuffle=True)


def plain(model: Any, batches: Iterator[Any]) -> Iterator[Any]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    model.train()
    model.body.requires_grad_(False)
    for step in range(EPOCHS * PER_EPOCH):
        if step % PER_EPOCH == 0:
            optimizer.param_groups[0]["weight_decay"] = 1e-3 * (1 + step // PER_EPOCH)
            if step == PER_EPOCH:
                model.body.requires_grad_(True)
        if step == 14:
            optimizer.param_groups[0]["lr"] *= 0.1
            model.head.bias.requires_grad_(False)
        x, y = next(batches)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if (step + 1) % PER_EPOCH == 0:
            schedule.step()
        yield optimizer


def fit(module: Any, out: Path, **given: Any) -> Any:
    return tallystick.fit_lightning(
        module, loader(), out=out, max_epochs=EPOCHS, progress=False, **given
    )


def test_hooks_are_trained_as_written(tmp_path: Path) -> None:
    module = Tuned()

    def loop() -> Loop:
        order, total = Order(True, RECORDS, SIZE, EPOCHS, False), EPOCHS * PER_EPOCH
        return Loop(Net(), lambda out: fit(module, out), plain, order, total, loader)

    found = measured(Case("hooks", "Lightning", (), loop), tmp_path)
    assert found.outcome == "as written", found
    assert found.steps == 18
    # The module has the flags that the hooks leave.
    frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
    assert frozen == ["head.bias"]


def test_hooks_that_change_nothing_leave_the_job_as_it_was(tmp_path: Path) -> None:
    class Reports(Net):
        def on_train_epoch_start(self) -> None:
            self.log("epoch", float(self.current_epoch))  # type: ignore[operator, arg-type]
            print(self.current_epoch)

    fit(Net(), tmp_path / "plain")
    fit(Reports(), tmp_path / "reports")
    digests = [load_job(tmp_path / name / "job").digest for name in ("plain", "reports")]
    assert digests[0] == digests[1]


def clamps(self: Any) -> None:
    self.head.weight.data.clamp_(-0.1, 0.1)


def remembers(self: Any) -> None:
    self.scale = 2.0


def evaluates(self: Any) -> None:
    self.body.eval()


def stops(self: Any) -> None:
    self.trainer.should_stop = True


def reads(self: Any) -> None:
    if float(self.head.weight.sum()) > 0.0:
        self.body.requires_grad_(False)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (clamps, "The hook computes with tensors"),
        (remembers, "It changes the attribute module.scale"),
        (evaluates, "It changes the attribute module.body.training"),
        (stops, "It changes its trainer's should_stop"),
        (reads, "The hook computes with tensors"),
    ],
)
def test_other_changes_are_refused_by_name(act: Any, words: str, tmp_path: Path) -> None:
    kind = type("Meddles", (Net,), {"on_train_epoch_start": act})
    with pytest.raises(UsageError, match=rf"Meddles\.on_train_epoch_start does .*({words})"):
        fit(kind(), tmp_path)
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("attribute", ["scale", "kept", "body"])
def test_a_hook_of_each_batch_changes_no_attribute(attribute: str, tmp_path: Path) -> None:
    def act(self: Any, batch: Any, batch_idx: int) -> None:
        if self.global_step == 7:
            {
                "scale": lambda: setattr(self, "scale", 2.0),
                "kept": lambda: self.kept.append(1),
                "body": lambda: self.body.eval(),
            }[attribute]()
        elif attribute == "body":
            self.body.train()  # back again

    kind = type("Meddles", (Net,), {"on_train_batch_start": act})
    with pytest.raises(UsageError, match=rf"step 7 .*the attribute module\.{attribute}"):
        fit(kind(), tmp_path)


def test_a_hook_that_ends_an_epoch_is_refused(tmp_path: Path) -> None:
    class Skips(Net):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 3 else None

    with pytest.raises(UsageError, match=r"on_train_batch_start.*leaves out an epoch"):
        fit(Skips(), tmp_path)


def test_a_hook_of_the_start_that_cannot_be_rehearsed_is_not_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Reports(Net):
        def on_train_start(self) -> None:
            self.trainer.datamodule.setup()  # type: ignore[union-attr, operator]

    assert fit(Reports(), tmp_path).finished
    told = " ".join(capsys.readouterr().err.split())
    assert "Reports.on_train_start" in told and "It is not called." in told
