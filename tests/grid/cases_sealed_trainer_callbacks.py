"""Loops of transformers' Trainer whose numbers follow the state of the training or a callback."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import tallystick
import torch
from grid.case import Loop, Order, grid_case
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback, TrainingArguments

USUAL: dict[str, Any] = {
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "remove_unused_columns": False,
    "save_strategy": "no",
    "logging_steps": 10,
    "seed": 6,
}


class AutoEncoder(nn.Module):
    """A small autoencoder whose code is kept small by a penalty (RAE)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 24), nn.ELU(), nn.Linear(24, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 24), nn.ELU(), nn.Linear(24, 12))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        code = self.encoder(x)
        return {"reconstruction": self.decoder(code), "code": code}


@grid_case(
    "trainer_rae_annealed",
    "Trainer",
    ("compute_loss", "weight of a term by state.global_step", "drop_last", "cosine", "extra loss every third step"),
)
def trainer_rae_annealed() -> Loop:
    """A regularised autoencoder in a Trainer; the penalty's weight grows with state.global_step."""
    batch, epochs, ramp = 8, 4, 12
    torch.manual_seed(30)
    model = AutoEncoder()
    generator = torch.Generator().manual_seed(31)
    x = torch.tanh(torch.randn(50, 3, generator=generator) @ torch.randn(3, 12, generator=generator))
    rows = [{"x": row} for row in x]
    per_epoch = len(rows) // batch
    updates = per_epoch * epochs

    class RAETrainer(tallystick.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            beta = min(1.0, self.state.global_step / ramp)
            loss = F.mse_loss(outputs["reconstruction"], inputs["x"]) + 0.1 * beta * outputs["code"].pow(2).mean()
            if self.state.global_step % 3 == 0:  # decoder's weights, lazily
                loss = loss + 3 * 1e-2 * sum(p.pow(2).sum() for p in model.decoder.parameters())
            return (loss, outputs) if return_outputs else loss

    def signed(out: Path) -> Any:
        arguments = TrainingArguments(
            str(out), per_device_train_batch_size=batch, num_train_epochs=epochs, learning_rate=1e-2,
            lr_scheduler_type="cosine", dataloader_drop_last=True, max_grad_norm=0.0, **USUAL,
        )
        trainer = RAETrainer(model, arguments, train_dataset=rows)
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / updates))
        )
        for step in range(updates):
            b = next(batches)
            made = model(b["x"])
            loss = F.mse_loss(made["reconstruction"], b["x"])
            loss = loss + 0.1 * min(1.0, step / ramp) * made["code"].pow(2).mean()
            if step % 3 == 0:
                loss = loss + 3 * 1e-2 * sum(p.pow(2).sum() for p in model.decoder.parameters())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(model, signed, plain, Order(True, len(rows), batch, epochs, True), updates)


class Tower(nn.Module):
    """Blocks one above the other, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(10, 16)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(2)])
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        logits = self.head(h)
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def layers(model: Tower) -> list[nn.Module]:
    """From the top to the bottom."""
    return [model.head, model.blocks[1], model.blocks[0], model.stem]


def thaw(model: Tower, epoch: int) -> None:
    for depth, layer in enumerate(layers(model)):
        layer.requires_grad_(depth <= epoch)


class GradualUnfreezing(TrainerCallback):
    """ULMFiT: one more layer learns in each epoch."""

    def on_epoch_begin(self, args, state, control, model=None, **kwargs):
        thaw(model, round(state.epoch or 0))


@grid_case(
    "trainer_gradual_unfreezing",
    "Trainer",
    ("gradual unfreezing by callback", "layer-wise decay of the rate", "optimizers given", "clipping of what is thawed"),
)
def trainer_gradual_unfreezing() -> Loop:
    """ULMFiT's fine-tuning moved to a Trainer: a callback thaws a layer per epoch, rates fall by depth."""
    batch, epochs = 6, 4
    torch.manual_seed(32)
    model = Tower()
    generator = torch.Generator().manual_seed(33)
    x = torch.randn(48, 10, generator=generator)
    rows = [{"x": a, "labels": (a[:3] * a[3:6]).argmax()} for a in x]
    per_epoch = len(rows) // batch
    updates = per_epoch * epochs

    def optimizer_of(model: Tower) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            [{"params": list(layer.parameters()), "lr": 1e-2 / 2.6**depth} for depth, layer in enumerate(layers(model))],
            weight_decay=0.05,
        )

    def signed(out: Path) -> Any:
        thaw(model, epochs)  # all weights are the optimizer's
        optimizer = optimizer_of(model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / updates)
        arguments = TrainingArguments(
            str(out), per_device_train_batch_size=batch, num_train_epochs=epochs, max_grad_norm=0.3, **USUAL
        )
        trainer = tallystick.Trainer(
            model, arguments, train_dataset=rows, optimizers=(optimizer, scheduler), callbacks=[GradualUnfreezing()]
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = optimizer_of(model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / updates)
        for epoch in range(epochs):
            thaw(model, epoch)
            for _ in range(per_epoch):
                b = next(batches)
                optimizer.zero_grad()
                model(**b)["loss"].backward()
                nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 0.3)
                optimizer.step()
                scheduler.step()
                yield optimizer

    return Loop(model, signed, plain, Order(True, len(rows), batch, epochs, False), updates)


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.bn = nn.Linear(7, 20, bias=False), nn.BatchNorm1d(20)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(20, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.last(self.drop(F.relu(self.bn(self.first(x)))))
        out = {"logits": logits}
        if labels is not None:
            out["loss"] = F.cross_entropy(logits, labels)
        return out


class DecayLater(TrainerCallback):
    """Weight decay begins when the model has found its place; and training ends at a step of ours."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end

    def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
        if state.global_step == self.begin:
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.2

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= self.end:
            control.should_training_stop = True
        return control


class Remember(TrainerCallback):
    """Only keeps what is logged."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            self.seen.append(float(logs["loss"]))


@grid_case(
    "trainer_decay_later_and_stop",
    "Trainer",
    ("callback changes weight_decay", "callback stops training", "callback only logs", "class weights",
     "sequential sampler", "BatchNorm", "dropout", "last short batch"),
)
def trainer_decay_later_and_stop() -> Loop:
    """A tabular Trainer: records in their order, class weights, callbacks for the decay and for the end."""
    batch, begin, end = 8, 10, 22
    torch.manual_seed(34)
    model = Scorer()
    generator = torch.Generator().manual_seed(35)
    x = torch.randn(45, 7, generator=generator)
    y = (x[:, 0] > 0.5).long() + (x[:, 1] > 1.0).long()
    rows = [{"x": a, "labels": b} for a, b in zip(x, y, strict=True)]
    weights = torch.tensor([0.5, 1.5, 3.0])

    class WeightedTrainer(tallystick.Trainer):
        def _get_train_sampler(self, train_dataset=None):
            return SequentialSampler(self.train_dataset)

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(x=inputs["x"])
            loss = F.cross_entropy(outputs["logits"], inputs["labels"], weight=weights)
            return (loss, outputs) if return_outputs else loss

    def signed(out: Path) -> Any:
        arguments = TrainingArguments(
            str(out), per_device_train_batch_size=batch, max_steps=40, learning_rate=1e-2,
            lr_scheduler_type="linear", **USUAL,
        )
        trainer = WeightedTrainer(
            model, arguments, train_dataset=rows, callbacks=[DecayLater(begin, end), Remember()]
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        weight = weights.to(model.last.weight.dtype)
        # no decay by the arguments, so both of Trainer's groups begin with 0; the callback changes both
        norms = ("bias",)
        groups = [
            {"params": [p for n, p in model.named_parameters() if not n.endswith(norms)]},
            {"params": [p for n, p in model.named_parameters() if n.endswith(norms)]},
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 40)
        for step in range(end):
            b = next(batches)
            if step == begin:
                for group in optimizer.param_groups:
                    group["weight_decay"] = 0.2
            optimizer.zero_grad()
            F.cross_entropy(model(x=b["x"])["logits"], b["labels"], weight=weight).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(model, signed, plain, Order(False, len(rows), batch, math.ceil(end / 6), False), end)
