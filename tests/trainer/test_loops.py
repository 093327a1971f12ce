"""`tallystick.fit` and `tallystick.fit_lightning` beside the loops that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)
from trainer_parts import BATCH, RECORDS, Net, points

import tallystick
from tallystick.commit.order import batch_indices
from tallystick.errors import UsageError
from tallystick.trainer.loop import updates_of


def loss(module: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return F.cross_entropy(module(x), y)


def loader(count: int = RECORDS, seed: int = 1, **given: Any) -> Any:
    return DataLoader(TensorDataset(*points(count, seed)), batch_size=BATCH, shuffle=True, **given)


def by_hand(steps: int, epochs_of: int, module: Any, optimizer: Any, scheduler: Any) -> list[float]:
    """The loop as people write it, over the job's order of records."""
    x, y = points()
    found = []
    for step in range(steps):
        chosen = torch.from_numpy(batch_indices(0, RECORDS, step, BATCH))
        optimizer.zero_grad()
        value = loss(module, (x[chosen], y[chosen]))
        value.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        if (step + 1) % epochs_of == 0:
            scheduler.step()
        found.append(float(value))
    return found


def parts() -> tuple[Any, Any, Any]:
    module = Net().train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.02, weight_decay=0.1)
    return module, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)


def test_a_plain_loop_of_fifty_steps(tmp_path: Path) -> None:
    module, optimizer, scheduler = parts()
    run = tallystick.fit(
        module, loss, loader(), optimizer, out=tmp_path, steps=50, scheduler=scheduler,
        scheduler_every="epoch", clip_norm=0.5, progress=False,
    )  # fmt: skip
    theirs = parts()
    np.testing.assert_allclose(run.losses, by_hand(50, RECORDS // BATCH, *theirs), rtol=1e-4)
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, theirs[0].state_dict()[name], rtol=1e-3, atol=1e-5)
    assert tallystick.audit(tmp_path / "run", progress=False).accepted


def test_validation_is_read_by_its_own_collator(tmp_path: Path) -> None:
    """Held-out records are those that their own loader makes, not the training loader's."""

    def shifted(rows: list[Any]) -> tuple[Any, Any]:
        x, y = default_collate(rows)
        return x + 3.0, y

    module = Net().train()
    run = tallystick.fit(
        module, loss, loader(), torch.optim.SGD(module.parameters(), lr=0.0), out=tmp_path, steps=2,
        validation=loader(8, 2, collate_fn=shifted), evaluate_every=2, progress=False,
    )  # fmt: skip
    module.eval()
    x, y = points(8, 2)
    assert run.validation[0][1] == pytest.approx(float(loss(module, (x + 3.0, y))), rel=1e-5)
    with pytest.raises(UsageError, match="makes different records than that of the data"):
        tallystick.fit(
            module, loss, loader(), torch.optim.SGD(module.parameters(), lr=0.1),
            out=tmp_path / "b", steps=2, evaluate_every=2,
            validation=loader(8, 2, collate_fn=lambda r: (default_collate(r)[0][:, :2],
                                                          default_collate(r)[1])),
        )  # fmt: skip


def test_a_script_of_fit_runs_again(tmp_path: Path) -> None:
    def fitted(steps: int, **more: Any) -> int:
        module, optimizer, scheduler = parts()
        given = {"out": tmp_path, "steps": steps, "scheduler": scheduler, "progress": False}
        return len(tallystick.fit(module, loss, loader(), optimizer, **given, **more).losses)

    assert fitted(2, overwrite=True) == 2
    assert fitted(3, overwrite=True) == 3
    with pytest.raises(UsageError, match="another job"):
        fitted(2)


def test_accumulation_stop_and_the_best_weights(tmp_path: Path) -> None:
    module = Net().train()
    run = tallystick.fit(
        module, loss, loader(), torch.optim.SGD(module.parameters(), lr=1.0), out=tmp_path,
        epochs=20, accumulate=2, validation=loader(8, 2), evaluate_every=2,
        stop=tallystick.StopRule(patience=2), best=True, progress=False,
    )  # fmt: skip
    losses = [value for _, value in run.validation]
    best = int(np.argmin(losses))
    assert len(losses) == best + 3 < 30
    module.eval()
    x, y = points(8, 2)
    assert float(loss(module, (x, y)).detach()) == pytest.approx(losses[best], rel=1e-4)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (
            lambda: DataLoader(
                TensorDataset(*points()), BATCH, sampler=WeightedRandomSampler([1.0] * 24, 24)
            ),
            "WeightedRandomSampler",
        ),
        (lambda: TensorDataset(*points()), "no batch size"),
        (lambda: DataLoader(_Stream(), BATCH), "IterableDataset"),
        (
            lambda: loader(collate_fn=lambda rows: (torch.rand(len(rows), 5), rows[0][1])),
            "'field1' of shape",
        ),
        (
            lambda: loader(
                collate_fn=lambda rows: (
                    torch.stack([r[0] for r in rows]) - rows[0][0] + rows[-1][0],
                    torch.stack([r[1] for r in rows]),
                )
            ),
            "depend on the other records",
        ),
    ],
)
def test_data_that_no_job_can_have_is_refused_by_name(
    tmp_path: Path, data: Any, named: str
) -> None:
    module = Net().train()
    with pytest.raises(UsageError, match=named):
        tallystick.fit(
            module, loss, data(), tallystick.SGD(0.1), out=tmp_path, steps=2, progress=False
        )


class _Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        yield from zip(*points(), strict=True)


def test_a_set_without_a_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no length"):
        tallystick.fit(
            Net(), loss, _Stream(), tallystick.SGD(0.1), out=tmp_path, steps=2, batch_size=4
        )


def test_a_directory_of_the_jobs_name_stays(tmp_path: Path) -> None:
    mine = tmp_path / "job" / "thesis.tex"
    mine.parent.mkdir()
    mine.write_text("mine")
    given: dict[str, Any] = {"out": tmp_path, "steps": 1, "progress": False}
    tallystick.fit(Net().train(), loss, loader(), tallystick.SGD(0.1), **given)
    assert mine.read_text() == "mine"
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        tallystick.fit(Net().train(), loss, loader(), tallystick.SGD(0.1), overwrite=True, **given)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("accumulate", (1, 2))
@pytest.mark.parametrize("drop", (False, True))
def test_the_updates_of_an_epoch(drop: bool, accumulate: int) -> None:
    for records in (1, 4, 11, 12, 13, 21):
        made = DataLoader(TensorDataset(torch.zeros(records)), batch_size=4, drop_last=drop)
        taken = records // 4 * 4 if drop else records
        assert updates_of(taken, 4, accumulate) == -(-len(made) // accumulate)


# -- Lightning -------------------------------------------------------------------------------------
class Steps:
    """What a LightningModule has; with nn.Module alone it is the stand-in."""

    def build(self) -> None:
        self.net = Net()  # type: ignore[attr-defined]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        value = loss(self.net, batch)
        self.log("train_loss", value)  # type: ignore[attr-defined]
        return value

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", loss(self.net, batch))  # type: ignore[attr-defined]

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)  # type: ignore[attr-defined]
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler}}


def stand_in() -> Any:
    class Module(Steps, nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.build()

        def log(self, *_: Any) -> None:
            raise AssertionError("the adapter takes it")

    return Module().train()


def real() -> Any:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Module(Steps, lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.build()

    return Module().train()


def test_a_lightning_module_trains_as_lightning_does(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    module = real()
    run = tallystick.fit_lightning(
        module, loader(), loader(8, 2), out=tmp_path / "a", max_epochs=4, gradient_clip_val=0.5,
        progress=False,
    )  # fmt: skip
    assert len(run.losses) == 24 and len(run.validation) == 4
    x, y = points()
    order = [i for step in range(24) for i in batch_indices(0, RECORDS, step, BATCH).tolist()]
    theirs = real()
    epochs = [DataLoader(TensorDataset(x[o], y[o]), BATCH) for o in np.array_split(order, 4)]

    class Data(lightning.LightningDataModule):  # type: ignore[misc, name-defined]
        def train_dataloader(self) -> Any:
            return epochs[self.trainer.current_epoch]

        def val_dataloader(self) -> Any:
            return DataLoader(TensorDataset(*points(8, 2)), BATCH)

    trainer = lightning.Trainer(
        max_epochs=4, gradient_clip_val=0.5, accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
        reload_dataloaders_every_n_epochs=1, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(theirs, datamodule=Data())
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, theirs.state_dict()[name], rtol=1e-3, atol=1e-5)
    committed = run.validation[-1][1]
    assert committed == pytest.approx(float(trainer.callback_metrics["val_loss"]), rel=1e-4)


def test_the_stand_in_gives_the_same_root(tmp_path: Path) -> None:
    runs = [
        tallystick.fit_lightning(
            make(), loader(), loader(8, 2), out=tmp_path / make.__name__, max_steps=4,
            val_check_interval=2, progress=False,
        ).run_root
        for make in (stand_in, real)
    ]  # fmt: skip
    assert runs[0] == runs[1]


def test_what_a_lightning_job_would_never_call_is_refused(tmp_path: Path) -> None:
    def with_method(name: str, method: Any) -> Any:
        kind = type(stand_in())
        return type("Odd", (kind,), {name: method})()

    def fails(module: Any, named: str) -> None:
        with pytest.raises(UsageError, match=named):
            tallystick.fit_lightning(module, loader(), out=tmp_path, max_steps=2, progress=False)

    fails(with_method("on_before_optimizer_step", lambda self, o: None), "on_before_optimizer_step")
    fails(with_method("automatic_optimization", False), "manual optimization")
    two = lambda self: [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]  # noqa: E731
    fails(with_method("configure_optimizers", two), "2 optimizers")
    data = type("Data", (), {"on_after_batch_transfer": lambda self, batch, i: batch})()
    with pytest.raises(UsageError, match="Data overrides on_after_batch_transfer"):
        tallystick.fit_lightning(stand_in(), datamodule=data, out=tmp_path, max_steps=2)
    fails(with_method("training_step", lambda self, batch, i: None), "returns no loss")
