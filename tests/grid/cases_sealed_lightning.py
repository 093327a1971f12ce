"""LightningModules whose numbers follow epochs, batches, steps and hooks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning as L
import tallystick
import torch
from grid.case import Loop, Order, grid_case
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class LitAutoEncoder(L.LightningModule):
    """An autoencoder with a penalty on its code whose weight goes up and down by epoch."""

    def __init__(self, cycle: int) -> None:
        super().__init__()
        self.cycle = cycle
        self.encoder = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 20), nn.SiLU(), nn.Linear(20, 10))

    def beta(self) -> float:
        return min(1.0, (self.current_epoch % self.cycle) / (self.cycle - 1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        (x,) = batch
        code = self.encoder(x)
        loss = F.mse_loss(self.decoder(code), x) + 0.2 * self.beta() * code.pow(2).sum(1).mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        (x,) = batch
        self.log("val_loss", F.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=1.5e-2)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}


@grid_case(
    "lightning_autoencoder_plateau",
    "Lightning",
    ("weight of a term by current_epoch, cyclical", "ReduceLROnPlateau", "validation with a last short batch",
     "last short batch of training"),
)
def lightning_autoencoder_plateau() -> Loop:
    """Lightning's autoencoder example, with a cyclical annealed penalty and ReduceLROnPlateau."""
    batch, epochs, count, held = 8, 6, 36, 20
    torch.manual_seed(60)
    model = LitAutoEncoder(cycle=3)
    generator = torch.Generator().manual_seed(61)
    x = torch.randn(count + held, 3, generator=generator) @ torch.randn(3, 10, generator=generator)
    per_epoch = math.ceil(count / batch)

    def signed(out: Path) -> Any:
        return tallystick.fit_lightning(
            model,
            DataLoader(TensorDataset(x[:count]), batch_size=batch, shuffle=True),
            DataLoader(TensorDataset(x[count:]), batch_size=batch),
            out=out, max_epochs=epochs,
        )

    def plain(model, batches):
        dtype = model.encoder[0].weight.dtype
        optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-2)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
        for epoch in range(epochs):
            for i in range(per_epoch):
                model.train()
                (rows,) = next(batches)
                code = model.encoder(rows)
                beta = min(1.0, (epoch % 3) / 2)
                loss = F.mse_loss(model.decoder(code), rows) + 0.2 * beta * code.pow(2).sum(1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if i == per_epoch - 1:
                    model.eval()
                    with torch.no_grad():  # self.log weighs each batch by its size
                        rest = x[count:].to(dtype)
                        scheduler.step(F.mse_loss(model.decoder(model.encoder(rest)), rest))
                yield optimizer

    return Loop(model, signed, plain, Order(True, count, batch, epochs, False), per_epoch * epochs)


def projector(inputs: int, hidden: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, out))


class LitBYOL(L.LightningModule):
    """BYOL as in lightly's and bolts' modules: the target follows after each batch."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.online, self.target = projector(8, 20, 6), projector(8, 20, 6)
        self.predictor = projector(6, 12, 6)
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        one, two = batch
        loss = self.similarity(one, two) + self.similarity(two, one)
        self.log("loss", loss, prog_bar=True)
        return loss

    def similarity(self, seen: Tensor, hidden: Tensor) -> Tensor:
        made = self.predictor(self.online(seen))
        with torch.no_grad():
            wanted = self.target(hidden)
        return 2 - 2 * F.cosine_similarity(made, wanted, dim=-1).mean()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        tau = 1 - (1 - 0.9) * (math.cos(math.pi * self.global_step / self.steps) + 1) / 2
        with torch.no_grad():
            for p, q in zip(self.online.parameters(), self.target.parameters(), strict=True):
                q.data = tau * q.data + (1 - tau) * p.data

    def configure_optimizers(self) -> Any:
        trained = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.SGD(trained, lr=0.05, momentum=0.9, weight_decay=1e-4)


@grid_case(
    "lightning_byol",
    "Lightning",
    ("target by EMA in on_train_batch_end", "momentum by global_step", "BatchNorm", "drop_last"),
)
def lightning_byol() -> Loop:
    """BYOL in Lightning (bolts): the target net is averaged in on_train_batch_end, tau by global_step."""
    batch, epochs, count = 8, 5, 44
    updates = count // batch * epochs
    torch.manual_seed(62)
    model = LitBYOL(updates)
    generator = torch.Generator().manual_seed(63)
    middle = torch.randn(count, 8, generator=generator)
    one, two = (middle + 0.3 * torch.randn(count, 8, generator=generator) for _ in range(2))

    def signed(out: Path) -> Any:
        loader = DataLoader(TensorDataset(one, two), batch_size=batch, shuffle=True, drop_last=True)
        return tallystick.fit_lightning(model, loader, out=out, max_epochs=epochs)

    def plain(model, batches):
        model.train()
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.05, momentum=0.9, weight_decay=1e-4)
        for step in range(1, updates + 1):
            a, b = next(batches)
            loss = model.similarity(a, b) + model.similarity(b, a)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tau = 1 - (1 - 0.9) * (math.cos(math.pi * step / updates) + 1) / 2
            with torch.no_grad():
                for p, q in zip(model.online.parameters(), model.target.parameters(), strict=True):
                    q.mul_(tau).add_(p, alpha=1 - tau)
            yield optimizer

    return Loop(model, signed, plain, Order(True, count, batch, epochs, True), updates)


class LitTransfer(L.LightningModule):
    """A backbone that is frozen in the first epochs, and a head; warm-up by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(9, 18), nn.LayerNorm(18), nn.GELU(), nn.Dropout(0.1))
        self.head = nn.Linear(18, 4)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.head(self.backbone(x)), y, label_smoothing=0.05)

    def on_train_epoch_start(self) -> None:
        self.backbone.requires_grad_(self.current_epoch >= 2)

    def lr_factor(self, step: int) -> float:
        return min(1.0, (step + 1) / 6)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(
            [{"params": self.backbone.parameters(), "lr": 2e-3}, {"params": self.head.parameters()}],
            lr=1e-2, weight_decay=0.1,
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.lr_factor)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


@grid_case(
    "lightning_transfer_freeze",
    "Lightning",
    ("freezing until an epoch in on_train_epoch_start", "groups with different rates", "warm-up per step", "dropout",
     "label smoothing", "clipping"),
)
def lightning_transfer_freeze() -> Loop:
    """Lightning's finetuning example: on_train_epoch_start thaws the backbone in epoch 2; rates warm up."""
    batch, epochs, count = 6, 5, 30
    torch.manual_seed(64)
    model = LitTransfer()
    generator = torch.Generator().manual_seed(65)
    x = torch.randn(count, 9, generator=generator)
    y = x[:, :4].abs().argmax(1)
    per_epoch = count // batch

    def signed(out: Path) -> Any:
        loader = DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True)
        return tallystick.fit_lightning(model, loader, out=out, max_epochs=epochs, gradient_clip_val=0.5)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(
            [{"params": model.backbone.parameters(), "lr": 2e-3}, {"params": model.head.parameters()}],
            lr=1e-2, weight_decay=0.1,
        )
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 6))
        for epoch in range(epochs):
            model.backbone.requires_grad_(epoch >= 2)
            for _ in range(per_epoch):
                rows, wanted = next(batches)
                loss = F.cross_entropy(model.head(model.backbone(rows)), wanted, label_smoothing=0.05)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 0.5)
                optimizer.step()
                scheduler.step()
                yield optimizer

    return Loop(model, signed, plain, Order(True, count, batch, epochs, False), per_epoch * epochs)


class LitTwoTasks(L.LightningModule):
    """A shared body, a class and a number; now and then a consistency of the two."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.classes, self.number = nn.Linear(16, 3), nn.Linear(16, 1)
        self.log_variance = nn.Parameter(torch.zeros(2))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y, z = batch
        h = self.body(x)
        logits, made = self.classes(h), self.number(h).squeeze(1)
        losses = torch.stack([F.cross_entropy(logits, y), F.mse_loss(made, z)])
        loss = (torch.exp(-self.log_variance) * losses + 0.5 * self.log_variance).sum()
        if batch_idx % 3 == 0:
            places = torch.arange(3, dtype=logits.dtype)
            loss = loss + 0.1 * ((logits.softmax(-1) * places).sum(-1) - made).pow(2).mean()
        self.log_dict({"class": losses[0], "number": losses[1]}, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=8e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]


@grid_case(
    "lightning_two_tasks_accumulated",
    "Lightning",
    ("extra loss by batch_idx", "accumulation with a shorter last group", "last short batch", "StepLR per epoch"),
)
def lightning_two_tasks_accumulated() -> Loop:
    """Multi-task learning (Kendall et al.) in Lightning: a term by batch_idx, batches accumulated by two."""
    batch, accumulate, epochs, count = 4, 2, 4, 26
    torch.manual_seed(66)
    model = LitTwoTasks()
    generator = torch.Generator().manual_seed(67)
    x = torch.randn(count, 8, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    z = y.float() + 0.2 * x[:, 2]
    loader_length = math.ceil(count / batch)
    updates = math.ceil(loader_length / accumulate) * epochs

    def signed(out: Path) -> Any:
        loader = DataLoader(TensorDataset(x, y, z), batch_size=batch, shuffle=True)
        return tallystick.fit_lightning(
            model, loader, out=out, max_epochs=epochs, accumulate_grad_batches=accumulate
        )

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        for _ in range(epochs):
            for index in range(loader_length):
                rows, wanted, number = next(batches)
                if index % accumulate == 0:
                    optimizer.zero_grad()
                h = model.body(rows)
                logits, made = model.classes(h), model.number(h).squeeze(1)
                losses = torch.stack([F.cross_entropy(logits, wanted), F.mse_loss(made, number)])
                loss = (torch.exp(-model.log_variance) * losses + 0.5 * model.log_variance).sum()
                if index % 3 == 0:
                    places = torch.arange(3, dtype=logits.dtype)
                    loss = loss + 0.1 * ((logits.softmax(-1) * places).sum(-1) - made).pow(2).mean()
                (loss / accumulate).backward()  # the last batch alone is divided too
                last = index == loader_length - 1
                if (index + 1) % accumulate == 0 or last:
                    optimizer.step()
                    if last:
                        scheduler.step()
                    yield optimizer

    return Loop(model, signed, plain, Order(True, count, batch, epochs, False), updates)
