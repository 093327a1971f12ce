"""transformers' Trainer with a loss of one's own: annealed, by curriculum, distilled."""

from __future__ import annotations

import copy

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import TrainingArguments, default_data_collator

import tallystick

QUIET = {
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "save_strategy": "no",
    "remove_unused_columns": False,
}


def points(count: int, seed: int, width: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and the class of each by its three first coordinates."""
    x = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(1)


def loader_of(rows: list[dict], batch: int) -> DataLoader:
    return DataLoader(rows, batch_size=batch, shuffle=True, collate_fn=default_data_collator)


def linear_rate(optimizer: torch.optim.Optimizer, updates: int) -> LambdaLR:
    """Trainer's default schedule."""
    return LambdaLR(optimizer, lambda step: (updates - step) / updates)


def usual_step(model, optimizer, scheduler, loss) -> None:
    """What Trainer does with a loss: backward, clipping at 1.0, update, schedule."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()


class Vae(nn.Module):
    """A small variational autoencoder whose noise is a column of the records."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6))

    def forward(self, x, noise):
        mu, logvar = self.encoder(x).chunk(2, dim=1)
        rebuilt = self.decoder(mu + (0.5 * logvar).exp() * noise)
        reconstruction = F.mse_loss(rebuilt, x)
        divergence = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return {"reconstruction": reconstruction, "divergence": divergence}


@grid_case(
    "trainer-vae-annealed-by-global-step",
    "Trainer",
    ("KL annealing by self.state.global_step", "compute_loss override", "plain nn.Module"),
)
def vae_annealed() -> Loop:
    """Follows a VAE on Trainer: the divergence's weight grows over the first 20 updates."""
    x, _ = points(48, 21)
    noise = torch.randn(48, 3, generator=torch.Generator().manual_seed(22))
    rows = [{"x": a, "noise": b} for a, b in zip(x, noise, strict=True)]
    updates = 24

    def net():
        torch.manual_seed(23)
        return Vae()

    class Annealed(tallystick.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            beta = min(1.0, self.state.global_step / 20)
            loss = outputs["reconstruction"] + beta * outputs["divergence"]
            return (loss, outputs) if return_outputs else loss

    def signed(out):
        trainer = Annealed(
            net(),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=8,
                num_train_epochs=4,
                learning_rate=5e-3,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        decayed = [p for n, p in model.named_parameters() if "bias" not in n]
        others = [p for n, p in model.named_parameters() if "bias" in n]
        optimizer = torch.optim.AdamW(
            [{"params": decayed}, {"params": others}], lr=5e-3, weight_decay=0.0
        )
        scheduler = linear_rate(optimizer, updates)
        for step in range(updates):
            outputs = model(**next(batches))
            loss = outputs["reconstruction"] + min(1.0, step / 20) * outputs["divergence"]
            usual_step(model, optimizer, scheduler, loss)
            yield optimizer

    return Loop(
        net(), signed, plain, Order(True, 48, 8, 4, False), updates, lambda: loader_of(rows, 8)
    )


@grid_case(
    "trainer-curriculum-by-state-epoch",
    "Trainer",
    (
        "curriculum by self.state.epoch",
        "BatchNorm",
        "float epochs",
        "SGD given as optimizer",
        "per-record losses",
    ),
)
def curriculum() -> Loop:
    """Follows curriculum scripts: hard records weigh little in the first epochs, then as much."""
    x, y = points(40, 24)
    hard = (x[:, :3].topk(2).values.diff().abs().squeeze(1) < 0.5).float()
    rows = [
        {"x": a, "labels": int(b), "hard": float(c)} for a, b, c in zip(x, y, hard, strict=True)
    ]
    updates, per_epoch = 20, 5

    def net():
        torch.manual_seed(25)
        return nn.Sequential(
            nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)
        )

    def weighted(model, inputs, epoch):
        losses = F.cross_entropy(model(inputs["x"]), inputs["labels"], reduction="none")
        ease = 1.0 - inputs["hard"] * max(0.0, 1.0 - epoch / 3)
        return (ease * losses).sum() / ease.sum()

    class Curriculum(tallystick.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return weighted(model, inputs, self.state.epoch or 0.0)

    def signed(out):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8, gamma=0.5)
        trainer = Curriculum(
            model,
            TrainingArguments(str(out), per_device_train_batch_size=8, num_train_epochs=4, **QUIET),
            train_dataset=rows,
            data_collator=default_data_collator,
            optimizers=(optimizer, scheduler),
        )
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8, gamma=0.5)
        for step in range(updates):
            # Trainer sets state.epoch after each update: epoch + (step in epoch + 1) / steps
            loss = weighted(model, next(batches), step / per_epoch)
            usual_step(model, optimizer, scheduler, loss)
            yield optimizer

    return Loop(
        net(), signed, plain, Order(True, 40, 8, 4, False), updates, lambda: loader_of(rows, 8)
    )


@grid_case(
    "trainer-distillation-temperature",
    "Trainer",
    (
        "distillation",
        "temperature schedule by self.state.global_step",
        "teacher in an attribute",
        "attribute of a class as a hyperparameter",
        "dropout",
    ),
)
def distillation() -> Loop:
    """Follows DistilBERT-style trainers: a fixed teacher, and a temperature that falls to 1."""
    x, y = points(36, 26)
    rows = [{"x": a, "labels": int(b)} for a, b in zip(x, y, strict=True)]
    updates = 18

    def teacher_net():
        torch.manual_seed(27)
        return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3)).requires_grad_(False)

    def net():
        torch.manual_seed(28)
        return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 3))

    def distilled(model, teacher, inputs, temperature):
        logits = model(inputs["x"])
        with torch.no_grad():
            soft = F.softmax(teacher(inputs["x"]) / temperature, dim=-1)
        kl = F.kl_div(F.log_softmax(logits / temperature, dim=-1), soft, reduction="batchmean")
        return 0.5 * F.cross_entropy(logits, inputs["labels"]) + 0.5 * temperature**2 * kl

    class Distil(tallystick.Trainer):
        hottest = 4.0

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            temperature = max(1.0, self.hottest - 0.25 * self.state.global_step)
            return distilled(model, self.teacher, inputs, temperature)

    def signed(out):
        trainer = Distil(
            net(),
            TrainingArguments(
                str(out),
                per_device_train_batch_size=6,
                num_train_epochs=3,
                learning_rate=1e-2,
                warmup_steps=3,
                **QUIET,
            ),
            train_dataset=rows,
            data_collator=default_data_collator,
        )
        trainer.teacher = teacher_net().eval()
        trainer.train()
        return trainer.run

    def plain(model, batches):
        model.train()
        kind = next(model.parameters()).dtype
        teacher = copy.deepcopy(teacher_net()).eval().to(kind)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
        scheduler = LambdaLR(optimizer, lambda s: s / 3 if s < 3 else (updates - s) / (updates - 3))
        for step in range(updates):
            loss = distilled(model, teacher, next(batches), max(1.0, 4.0 - 0.25 * step))
            usual_step(model, optimizer, scheduler, loss)
            yield optimizer

    return Loop(
        net(), signed, plain, Order(True, 36, 6, 3, False), updates, lambda: loader_of(rows, 6)
    )
