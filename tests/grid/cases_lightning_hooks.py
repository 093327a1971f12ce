"""LightningModules with hooks and attributes of their own: teachers, freezing, counters."""

from __future__ import annotations

import copy

import lightning as L
import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import tallystick


def points(count: int, seed: int, width: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and the class of each by its three first coordinates."""
    x = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(1)


def two_views(count: int, seed: int, width: int = 6) -> TensorDataset:
    """Records of two views each: the same point, and other noise."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=made)
    views = [x + 0.2 * torch.randn(count, width, generator=made) for _ in range(2)]
    return TensorDataset(*views)


class LitByol(L.LightningModule):
    """BYOL; the target is averaged in on_train_batch_end (lightning-bolts: by a callback)."""

    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
        self.predictor = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def loss(self, batch):
        one, two = batch
        with torch.no_grad():
            z0, z1 = self.target(one), self.target(two)
        p0, p1 = self.predictor(self.online(one)), self.predictor(self.online(two))
        return 2 - F.cosine_similarity(p0, z1).mean() - F.cosine_similarity(p1, z0).mean()

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    @torch.no_grad()
    def average(self):
        for new, kept in zip(self.online.parameters(), self.target.parameters(), strict=True):
            kept.data.mul_(0.9).add_(new.data, alpha=0.1)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.average()

    def configure_optimizers(self):
        trained = [*self.online.parameters(), *self.predictor.parameters()]
        return torch.optim.Adam(trained, lr=5e-3, weight_decay=1e-4)


@grid_case(
    "lightning-byol-on-train-batch-end",
    "Lightning",
    (
        "teacher EMA in on_train_batch_end",
        "target as a submodule without gradient",
        "optimizer over a part of the parameters",
        "weight decay in Adam",
    ),
)
def byol() -> Loop:
    """Follows lightning-bolts' BYOL with BYOLMAWeightUpdate at the end of each batch."""
    data = two_views(48, 91)

    def net():
        torch.manual_seed(92)
        return LitByol()

    def loader():
        return DataLoader(data, batch_size=8, shuffle=True, drop_last=True)

    def signed(out):
        return tallystick.fit_lightning(net(), loader(), out=out, max_epochs=4, progress=False)

    def plain(model, batches):
        model.train()
        trained = [*model.online.parameters(), *model.predictor.parameters()]
        optimizer = torch.optim.Adam(trained, lr=5e-3, weight_decay=1e-4)
        for _ in range(24):
            optimizer.zero_grad()
            model.loss(next(batches)).backward()
            optimizer.step()
            model.average()
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 48, 8, 4, True), 24, loader)


class LitTuned(L.LightningModule):
    """A backbone that is frozen in the first two epochs, and a head."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.backbone(x))

    def on_train_epoch_start(self):
        if self.current_epoch == 0:
            self.backbone.requires_grad_(False)
        elif self.current_epoch == 2:
            self.backbone.requires_grad_(True)

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(
            [
                {"params": self.backbone.parameters(), "lr": 1e-3},
                {"params": self.head.parameters(), "lr": 1e-2},
            ],
            weight_decay=0.05,
        )


@grid_case(
    "lightning-backbone-frozen-until-epoch-2",
    "Lightning",
    (
        "freezing in on_train_epoch_start",
        "self.current_epoch",
        "parameter groups with other rates",
        "a last short batch",
    ),
)
def frozen_backbone() -> Loop:
    """Follows Lightning's transfer-learning example: unfreeze the backbone at a milestone."""
    x, y = points(37, 93)
    epochs, per_epoch = 5, 5

    def net():
        torch.manual_seed(94)
        return LitTuned()

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)

    def signed(out):
        return tallystick.fit_lightning(net(), loader(), out=out, max_epochs=epochs, progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(
            [
                {"params": model.backbone.parameters(), "lr": 1e-3},
                {"params": model.head.parameters(), "lr": 1e-2},
            ],
            weight_decay=0.05,
        )
        for epoch in range(epochs):
            if epoch == 0:
                model.backbone.requires_grad_(False)
            elif epoch == 2:
                model.backbone.requires_grad_(True)
            for _ in range(per_epoch):
                seen, target = next(batches)
                optimizer.zero_grad()
                F.cross_entropy(model(seen), target).backward()
                optimizer.step()
                yield optimizer

    return Loop(net(), signed, plain, Order(True, 37, 8, epochs, False), epochs * per_epoch, loader)


class LitContrast(L.LightningModule):
    """A contrastive net that counts its batches, and cools by the global step."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        self.seen = 0

    def loss(self, batch, step, seen):
        one, two = (F.normalize(self.net(view), dim=1) for view in batch)
        temperature = max(0.1, 0.5 * 0.93**step)
        logits = one @ two.T / temperature
        target = torch.arange(len(logits), device=logits.device)
        loss = F.cross_entropy(logits, target)
        if seen % 2 == 1:  # each second batch is also asked the other way round
            loss = 0.5 * (loss + F.cross_entropy(logits.T, target))
        return loss

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch, self.global_step, self.seen)
        self.seen += 1
        self.log("temperature", 0.5 * 0.93**self.global_step)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@grid_case(
    "lightning-contrast-global-step-and-own-counter",
    "Lightning",
    (
        "temperature schedule by self.global_step",
        "counter in an attribute of the module",
        "ExponentialLR each step",
        "loss over the whole batch",
        "drop_last",
    ),
)
def contrast() -> Loop:
    """Follows SimCLR and CLIP modules: InfoNCE with a temperature that falls."""
    data = two_views(52, 95)

    def net():
        torch.manual_seed(96)
        return LitContrast()

    def loader():
        return DataLoader(data, batch_size=8, shuffle=True, drop_last=True)

    def signed(out):
        return tallystick.fit_lightning(net(), loader(), out=out, max_epochs=4, progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
        for step in range(24):
            optimizer.zero_grad()
            model.loss(next(batches), step, step).backward()
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 52, 8, 4, True), 24, loader)


class LitWindow(L.LightningModule):
    """A classifier for accumulated gradients, with a cosine by the optimizer's steps."""

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        return [optimizer], [{"scheduler": cosine, "interval": "step"}]


@grid_case(
    "lightning-accumulation-short-window",
    "Lightning",
    (
        "accumulate_grad_batches with a short last window",
        "the short window still divides by 3",
        "gradient_clip_val",
        "cosine each step",
        "dropout",
    ),
)
def short_window() -> Loop:
    """Follows Lightning's accumulation: windows of 3, 3 and 1 batches, each divided by 3."""
    x, y = points(56, 97)
    epochs, per_epoch, window = 5, 7, 3
    updates = epochs * 3

    def net():
        torch.manual_seed(98)
        return LitWindow(updates)

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)

    def signed(out):
        return tallystick.fit_lightning(
            net(),
            loader(),
            out=out,
            max_epochs=epochs,
            accumulate_grad_batches=window,
            gradient_clip_val=0.5,
            progress=False,
        )

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
        for _ in range(epochs):
            for batch_idx in range(per_epoch):
                if batch_idx % window == 0:
                    optimizer.zero_grad()
                seen, target = next(batches)
                (F.cross_entropy(model.net(seen), target) / window).backward()
                if (batch_idx + 1) % window == 0 or batch_idx == per_epoch - 1:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    scheduler.step()
                    yield optimizer

    return Loop(net(), signed, plain, Order(True, 56, 8, epochs, False), updates, loader)
