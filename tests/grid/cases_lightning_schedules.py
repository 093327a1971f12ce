"""LightningModules whose rates and losses follow epochs, batch numbers, validation or own hooks."""

from __future__ import annotations

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


class LitVae(L.LightningModule):
    """A variational autoencoder; the noise comes with the records."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6))

    def parts(self, batch):
        x, noise = batch
        mu, logvar = self.encoder(x).chunk(2, dim=1)
        rebuilt = self.decoder(mu + (0.5 * logvar).exp() * noise)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return F.mse_loss(rebuilt, x), kl

    def training_step(self, batch, batch_idx):
        reconstruction, kl = self.parts(batch)
        beta = min(1.0, self.current_epoch / 3)
        loss = reconstruction + beta * kl
        self.log_dict({"reconstruction": reconstruction, "kl": kl, "beta": beta})
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


@grid_case(
    "lightning-vae-kl-by-current-epoch",
    "Lightning",
    ("KL annealing by self.current_epoch", "log_dict", "a last short batch", "shuffle"),
)
def vae_by_epoch() -> Loop:
    """Follows Lightning's VAE examples: beta grows from 0 to 1 over three epochs."""
    x, _ = points(44, 81)
    noise = torch.randn(44, 3, generator=torch.Generator().manual_seed(82))
    epochs, per_epoch = 5, 6

    def net():
        torch.manual_seed(83)
        return LitVae()

    def loader():
        return DataLoader(TensorDataset(x, noise), batch_size=8, shuffle=True)

    def signed(out):
        return tallystick.fit_lightning(net(), loader(), out=out, max_epochs=epochs, progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for epoch in range(epochs):
            for _ in range(per_epoch):
                reconstruction, kl = model.parts(next(batches))
                optimizer.zero_grad()
                (reconstruction + min(1.0, epoch / 3) * kl).backward()
                optimizer.step()
                yield optimizer

    return Loop(net(), signed, plain, Order(True, 44, 8, epochs, False), epochs * per_epoch, loader)


class LitSparse(L.LightningModule):
    """A classifier that pays for its first layer's weights in each third batch of an epoch."""

    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)
        )
        self.training_losses = []

    def loss(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        if batch_idx % 3 == 0:
            loss = loss + 0.01 * self.net[0].weight.abs().sum()
        return loss

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch, batch_idx)
        self.training_losses.append(loss.detach())
        self.log("train_loss", loss, prog_bar=True)
        return {"loss": loss}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)]


@grid_case(
    "lightning-penalty-by-batch-idx",
    "Lightning",
    (
        "if batch_idx % 3 == 0: extra loss",
        "batch_idx begins anew each epoch",
        "StepLR each epoch",
        "BatchNorm",
        "losses kept in a list",
        "drop_last",
        "training_step returns a dict",
    ),
)
def penalty_by_batch_idx() -> Loop:
    """Follows Lightning scripts with a lazy L1 penalty: of seven batches 0, 3 and 6 pay."""
    x, y = points(58, 84)
    epochs, per_epoch = 4, 7

    def net():
        torch.manual_seed(85)
        return LitSparse()

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, drop_last=True)

    def signed(out):
        return tallystick.fit_lightning(net(), loader(), out=out, max_epochs=epochs, progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        for _ in range(epochs):
            for batch_idx in range(per_epoch):
                optimizer.zero_grad()
                model.loss(next(batches), batch_idx).backward()
                optimizer.step()
                if batch_idx == per_epoch - 1:
                    scheduler.step()
                yield optimizer

    return Loop(net(), signed, plain, Order(True, 58, 8, epochs, True), epochs * per_epoch, loader)


class LitWarm(L.LightningModule):
    """A regression, warmed up in optimizer_step as in Lightning's documentation."""

    rate = 0.05

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.huber_loss(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        optimizer.step(closure=optimizer_closure)
        if self.trainer.global_step < 8:
            scale = min(1.0, float(self.trainer.global_step + 1) / 8.0)
            for group in optimizer.param_groups:
                group["lr"] = scale * self.rate

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.rate, momentum=0.9)


@grid_case(
    "lightning-warmup-in-optimizer-step",
    "Lightning",
    (
        "warm-up by hand of the learning rate",
        "optimizer_step override",
        "self.trainer.global_step",
        "lr assigned in param_groups",
        "shuffle=False",
    ),
)
def warmup_by_hand() -> Loop:
    """Follows Lightning's own example: first the full rate, then 1/8, 2/8 and so on."""
    x, _ = points(48, 86)
    y = torch.stack([x[:, 0] * x[:, 1], x.sum(1)], 1)

    def net():
        torch.manual_seed(87)
        return LitWarm()

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=False)

    def signed(out):
        return tallystick.fit_lightning(net(), loader(), out=out, max_epochs=3, progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for step in range(18):
            seen, target = next(batches)
            optimizer.zero_grad()
            F.huber_loss(model.net(seen), target).backward()
            optimizer.step()
            if step < 8:
                for group in optimizer.param_groups:
                    group["lr"] = min(1.0, float(step + 1) / 8.0) * 0.05
            yield optimizer

    return Loop(net(), signed, plain, Order(False, 48, 8, 3, False), 18, loader)


class LitPlateau(L.LightningModule):
    """A classifier whose rate follows the logged val_loss."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 3))

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1], label_smoothing=0.05)

    def validation_step(self, batch, batch_idx):
        logits = self.net(batch[0])
        accuracy = (logits.argmax(1) == batch[1]).float().mean()
        self.log("val_loss", F.cross_entropy(logits, batch[1]), prog_bar=True)
        self.log("val_acc", accuracy)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-2, weight_decay=0.01)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"},
        }


@grid_case(
    "lightning-plateau-on-val-loss",
    "Lightning",
    (
        "ReduceLROnPlateau with monitor",
        "validation not divisible by the batch",
        "val_loss only logged",
        "label smoothing in training alone",
        "dropout",
    ),
)
def plateau_on_val_loss() -> Loop:
    """Follows Lightning classifiers; the held-out labels differ, so the rate falls each epoch."""
    x, y = points(40, 88)
    held_x, held_y = points(19, 89)
    held_y = (held_y + 1) % 3
    epochs, per_epoch = 5, 5

    def net():
        torch.manual_seed(90)
        return LitPlateau()

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)

    def signed(out):
        held = DataLoader(TensorDataset(held_x, held_y), batch_size=8)
        return tallystick.fit_lightning(
            net(), loader(), held, out=out, max_epochs=epochs, progress=False
        )

    def plain(model, batches):
        kind = next(model.parameters()).dtype
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
        for _ in range(epochs):
            for step in range(per_epoch):
                model.train()
                seen, target = next(batches)
                optimizer.zero_grad()
                F.cross_entropy(model.net(seen), target, label_smoothing=0.05).backward()
                optimizer.step()
                if step == per_epoch - 1:
                    model.eval()
                    with torch.no_grad():
                        held_loss = F.cross_entropy(model.net(held_x.to(kind)), held_y).item()
                    scheduler.step(held_loss)
                yield optimizer

    return Loop(net(), signed, plain, Order(True, 40, 8, epochs, False), epochs * per_epoch, loader)
