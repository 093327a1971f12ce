"""The Trainer and Lightning beside tensors that their losses keep (PROGRAM 5.20)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from trainer_parts import BATCH, CLASSES, RECORDS, Net, arguments, gpt2, padded, points, sentences

import tallystick
from tallystick.commit.order import batch_indices
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore


def last_state(run: Path) -> dict[str, np.ndarray]:
    store = RunStore(run)
    job = store.job()
    claim = read_claim(store, job, None)
    return dict(store.load_state(job, claim.last_step, claim.roots[claim.last_step]).slots)


def batches(steps: int, seed: int = 0) -> list[Tensor]:
    return [torch.from_numpy(batch_indices(seed, RECORDS, s, BATCH)) for s in range(steps)]


class Centred(nn.Module):
    """A LightningModule's stand-in with a plain attribute that each step moves."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.centre = Net(), torch.zeros(CLASSES)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        scores = self.net(x)
        value = F.cross_entropy(scores - self.centre, y)
        self.centre = 0.8 * self.centre + 0.2 * scores.detach().mean(0)
        return value

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def test_a_lightning_modules_attribute_is_state(tmp_path: Path) -> None:
    module, plain = Centred().train(), Centred().train()
    loader = DataLoader(TensorDataset(*points(RECORDS, 1)), batch_size=BATCH, shuffle=True)
    run = tallystick.fit_lightning(module, loader, out=tmp_path, max_steps=12, progress=False)
    optimizer, (x, y), found = plain.configure_optimizers(), points(RECORDS, 1), []
    for chosen in batches(12):
        optimizer.zero_grad()
        value = plain.training_step((x[chosen], y[chosen]), 0)
        value.backward()
        optimizer.step()
        found.append(float(value))
    np.testing.assert_allclose(run.losses, found, rtol=2e-5)
    torch.testing.assert_close(module.centre, plain.centre, rtol=1e-4, atol=1e-6)
    state = last_state(tmp_path / "run")
    assert state["buffer.outside.module.centre"].tobytes() == module.centre.numpy().tobytes()


class Debiased:
    """A method of a Trainer that keeps a running mean of the losses' gradient scale."""

    def compute_loss(self, model: Any, inputs: Any, **given: Any) -> Any:
        if not hasattr(self, "mean"):
            raise AssertionError("made before the training")
        logits = model(input_ids=inputs["input_ids"]).logits
        value = F.cross_entropy(
            logits[:, :-1].flatten(0, 1) - self.mean, inputs["input_ids"][:, 1:].flatten()
        )
        self.mean = 0.9 * self.mean + 0.1 * logits.detach().mean((0, 1))
        return value


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_trainers_attribute_is_state(accumulate: int, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    kind = type("Mine", (Debiased, tallystick.Trainer), {})
    args = arguments(tmp_path, gradient_accumulation_steps=accumulate, weight_decay=0.0)
    ours = kind(gpt2(), args, train_dataset=sentences(), data_collator=padded)
    ours.mean = first = torch.zeros(31)
    ours.loss_is_scaled_for_ga = False
    ours.train()
    assert not torch.equal(ours.mean, first) and float(first.abs().sum()) == 0
    state = last_state(tmp_path / "run")
    assert state["buffer.outside.self.mean"].tobytes() == ours.mean.numpy().tobytes()
    model = gpt2().train()
    plain: Any = type("Plain", (Debiased,), {})()
    plain.mean = torch.zeros(31)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 6)
    size, records, found = BATCH * accumulate, sentences(), []
    whole = padded(records)
    for step in range(6):
        chosen = batch_indices(args.seed, RECORDS, step, size)
        optimizer.zero_grad()
        total = 0.0
        for part in np.array_split(chosen, accumulate):
            value = plain.compute_loss(model, {k: v[part] for k, v in whole.items()}) / accumulate
            value.backward()
            total += float(value.detach())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        found.append(total)
    assert ours.run is not None
    np.testing.assert_allclose(ours.run.losses, found, rtol=5e-5)
    torch.testing.assert_close(ours.mean, plain.mean, rtol=1e-3, atol=1e-5)
