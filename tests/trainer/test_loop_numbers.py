"""Losses of `fit` and `fit_lightning` that read the number of the step, epoch or batch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from grid.measure import committed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from trainer_parts import BATCH, RECORDS, Net, points

import tallystick
from tallystick.errors import UsageError
from tallystick.trainer.numbers import Epochs

RATE, UPDATES = 0.05, RECORDS // BATCH
Loss = Callable[[nn.Module, Any, Any], Tensor]


def loader(count: int = RECORDS, **given: Any) -> Any:
    return DataLoader(TensorDataset(*points(count)), BATCH, shuffle=True, **given)


def cross_entropy(module: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(module(batch[0]), batch[1])


def size(module: Any) -> Tensor:
    found: Tensor = module.last.weight.square().sum()
    return found


def annealed(module: nn.Module, batch: Any, at: Any) -> Tensor:
    return cross_entropy(module, batch) + min(1, at.step / 1000) * size(module)


def cosine(module: nn.Module, batch: Any, at: Any) -> Tensor:
    weight = 0.5 * (1 + math.cos(math.pi * at.step / at.steps))
    return cross_entropy(module, batch) + weight * size(module)


def late(module: nn.Module, batch: Any, at: Any) -> Tensor:
    found = cross_entropy(module, batch)
    return found + 0.1 * size(module) if at.epoch >= 2 else found


def lazy(module: nn.Module, batch: Any, at: Any) -> Tensor:
    found = cross_entropy(module, batch)
    return found + 0.1 * at.step * size(module) if at.step % 5 == 0 else found


def curriculum(module: Any, batch: Any, at: Any) -> Tensor:
    length = at.epoch + 2
    x = torch.nn.functional.pad(batch[0][:, :length], (0, batch[0].shape[1] - length))
    return F.cross_entropy(module(x), batch[1]) * 0.9**at.epoch


def within(module: nn.Module, batch: Any, at: Any) -> Tensor:
    return cross_entropy(module, batch) * (1 + at.batch) / at.batches


@pytest.mark.parametrize("loss", [annealed, cosine, late, lazy, curriculum, within])
@pytest.mark.parametrize("count", [RECORDS, RECORDS + 2], ids=["whole", "short"])
def test_every_step_is_that_of_plain_torch(tmp_path: Path, loss: Loss, count: int) -> None:
    """From each committed state, one step of SGD in float64 with the numbers of that step."""
    steps = 23
    module = Net().train()
    updates = math.ceil(count / BATCH)
    run = tallystick.fit(
        module, loss, loader(count), torch.optim.SGD(module.parameters(), lr=RATE),
        out=tmp_path, steps=steps, progress=False,
    )  # fmt: skip
    names = dict(module.named_parameters())
    numbers = Epochs(steps, updates, 1).whole()
    for t, step in enumerate(committed(run)):
        plain = Net().double().train()
        plain.load_state_dict({n: torch.from_numpy(step.before[f"param.{n}"]) for n in names})
        at = SimpleNamespace(step=t, epoch=t // updates, batch=t % updates, **numbers.constants)
        batch = [torch.from_numpy(step.batch[f"field{i}"]) for i in range(2)]
        value = loss(plain, [batch[0].double(), batch[1]], at)
        assert run.losses[t] == pytest.approx(float(value.detach()), rel=1e-5), t
        value.backward()
        for name, parameter in plain.named_parameters():
            moved = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            true = (parameter.detach() - RATE * moved).numpy()
            np.testing.assert_allclose(step.after[f"param.{name}"], true, rtol=1e-4, atol=1e-6)
    assert tallystick.audit(tmp_path / "run", progress=False).accepted


def manifest(directory: Path) -> Any:
    return json.loads((directory / "job" / "job.json").read_bytes())


def test_a_loss_without_numbers_makes_the_job_that_it_made(tmp_path: Path) -> None:
    """The numbers add nothing to a program that reads none."""
    jobs = []
    for name, loss in (
        ("two", cross_entropy),
        ("three", lambda module, batch, at: cross_entropy(module, batch)),
    ):
        module = Net().train()
        tallystick.fit(
            module, loss, loader(), torch.optim.SGD(module.parameters(), lr=RATE),
            out=tmp_path / name, steps=3, progress=False,
        )  # fmt: skip
        jobs.append(manifest(tmp_path / name)["commitment"])
    assert jobs[0] == jobs[1]


def test_accumulated_updates_have_one_step_and_several_batches(tmp_path: Path) -> None:
    def signed(loss: Loss, out: Path) -> Any:
        module = Net().train()
        return tallystick.fit(
            module, loss, loader(RECORDS + 2), torch.optim.SGD(module.parameters(), lr=RATE),
            out=out, steps=9, accumulate=2, progress=False,
        )  # fmt: skip

    per_epoch = -(-(RECORDS + 2) // BATCH)
    updates = -(-per_epoch // 2)
    for loss in (lazy, within):
        out = tmp_path / loss.__name__
        run = signed(loss, out)
        assert tallystick.audit(out / "run", progress=False).accepted
        check(run, loss, updates, per_epoch)


def check(run: Any, loss: Loss, updates: int, batches: int) -> None:
    """The losses are those of plain torch from the committed states."""
    for t, step in enumerate(committed(run)):
        plain = Net().double().train()
        state = {n: step.before[f"param.{n}"] for n, _ in plain.named_parameters()}
        plain.load_state_dict({n: torch.from_numpy(a) for n, a in state.items()})
        x, y = (torch.from_numpy(step.batch[f"field{i}"]) for i in range(2))
        parts = [
            loss(
                plain,
                [x[i : i + BATCH].double(), y[i : i + BATCH]],
                SimpleNamespace(step=t, batch=2 * (t % updates) + i // BATCH, batches=batches),
            )
            for i in range(0, len(x), BATCH)
        ]
        assert run.losses[t] == pytest.approx(float(sum(parts).detach()) / len(parts), rel=1e-5), t


def late_in_passes(module: nn.Module, batch: Any, at: Any) -> Tensor:
    """Every pass of the test comes after the fifth step, and has one epoch or more behind it."""
    found = cross_entropy(module, batch) * min(1, at.step / 5)
    return found + 0.1 * size(module) if at.epoch >= 1 else found


def test_a_validation_loss_reads_what_is_the_same_in_each_pass(tmp_path: Path) -> None:
    def trained(module: Any, batch: Any, at: Any) -> Tensor:
        found = cross_entropy(module, batch)
        return found + at.step * size(module) if module.training else found

    def signed(loss: Loss, out: Path) -> Any:
        module = Net().train()
        return tallystick.fit(
            module, loss, loader(RECORDS + 2), torch.optim.SGD(module.parameters(), lr=1e-3),
            validation=loader(10), out=out, steps=21, progress=False,
        )  # fmt: skip

    def by_turns(module: Any, batch: Any, at: Any) -> Tensor:
        found = cross_entropy(module, batch)
        return found + size(module) if at.step % 2 else found

    x, y = points(10)
    for name, loss in (("a", trained), ("b", late_in_passes)):
        run = signed(loss, tmp_path / name)
        steps = committed(run)
        assert [step for step, _ in run.validation] == [7, 14, 21]
        for pass_, (_, found) in enumerate(run.validation[:2], 1):
            plain, state = Net().double().eval(), steps[7 * pass_].before
            own = {n: torch.from_numpy(state[f"param.{n}"]) for n, _ in plain.named_parameters()}
            plain.load_state_dict(own)
            at = SimpleNamespace(step=7 * pass_, epoch=pass_)
            true = loss(plain, [x.double(), y], at)
            assert found == pytest.approx(float(true.detach()), rel=1e-5)
    for name, loss in (("c", annealed), ("d", by_turns), ("e", within)):
        with pytest.raises(UsageError, match=r"number of the (step|batch) \(.*:\d+\)"):
            signed(loss, tmp_path / name)


def test_a_job_that_decides_by_the_step_goes_on_to_no_other_steps(tmp_path: Path) -> None:
    """Its turns would begin anew, and its table has no later number."""
    for loss, match in ((late, "depends on the number of the step"), (annealed, "values of at.0")):
        module, out = Net().train(), tmp_path / match[:5]
        tallystick.fit(
            module, loss, loader(), torch.optim.SGD(module.parameters(), lr=RATE),
            out=out, steps=18, progress=False,
        )  # fmt: skip
        with pytest.raises(UsageError, match=match):
            tallystick.continue_run(out / "run", out / "more", 6)


# -- Lightning -------------------------------------------------------------------------------------
class Counted:
    """A training step that reads all of Lightning's numbers."""

    def build(self) -> None:
        self.net = Net()  # type: ignore[attr-defined]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        value = cross_entropy(self.net, batch)  # type: ignore[attr-defined]
        weight = 1 + self.global_step / 10 + 0.5**self.current_epoch  # type: ignore[attr-defined]
        if batch_idx % 3 == 0:
            value = value + 0.1 * size(self.net)  # type: ignore[attr-defined]
        value = value * weight / self.trainer.max_epochs  # type: ignore[attr-defined]
        self.log("train_loss", value)  # type: ignore[attr-defined]
        return value

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=RATE)  # type: ignore[attr-defined]


def counted(base: type) -> Any:
    class Module(Counted, base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.build()

        def log(self, *_: Any, **__: Any) -> None:
            """Lightning's own looks for a trainer; the others have none."""

    return Module().train()


@pytest.mark.parametrize("form", ["lightning", "its form"])
def test_the_numbers_are_those_of_lightning(tmp_path: Path, form: str) -> None:
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    x, y = points()
    ordered = DataLoader(TensorDataset(x, y), BATCH)
    module = counted(lightning.LightningModule if form == "lightning" else nn.Module)
    run = tallystick.fit_lightning(module, ordered, out=tmp_path, max_epochs=3, progress=False)
    theirs = counted(lightning.LightningModule)
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(theirs, ordered)
    assert len(run.losses) == trainer.global_step == 3 * UPDATES
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, theirs.state_dict()[name], rtol=1e-4, atol=1e-6)
    assert "global_step" not in vars(module) and vars(module).get("_trainer") is None


def test_what_no_job_knows_of_a_trainer_is_refused_by_name(tmp_path: Path) -> None:
    module = counted(nn.Module)

    def step(batch: Any, batch_idx: int) -> Tensor:
        found: Tensor = cross_entropy(module.net, batch) * module.trainer.fit_loop.epoch_progress
        return found

    module.training_step = step
    with pytest.raises(UsageError, match=r"asks its trainer for fit_loop \(.*:\d+\)"):
        tallystick.fit_lightning(module, loader(), out=tmp_path, max_steps=2, progress=False)
