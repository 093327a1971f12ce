"""Steps that differ in structure, in a plain loop: lazy R1 with spectral norm, stochastic depth."""

from __future__ import annotations

import random

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import tallystick


def pictures(count: int, seed: int, size: int = 8, channels: int = 1):
    """Noise with a bright quarter, whose place is the class (0 to 3)."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(count, channels, size, size, generator=made)
    y = torch.randint(0, 4, (count,), generator=made)
    half = size // 2
    for n, k in enumerate(y.tolist()):
        top, left = half * (k // 2), half * (k % 2)
        x[n, :, top : top + half, left : left + half] += 1.0
    return x, y


@grid_case(
    "fit-discriminator-lazy-r1",
    "fit",
    (
        "lazy regularisation: if step % 4 == 0",
        "gradient penalty (double backward)",
        "spectral norm",
        "counter in a closure",
        "Adam with betas (0, 0.99)",
    ),
)
def lazy_r1() -> Loop:
    """Follows StyleGAN2's discriminator on stored fakes: R1 in each fourth step, times four."""
    x, kind_of = pictures(48, 48)
    genuine = (kind_of % 2).float()
    updates = 24

    def net():
        torch.manual_seed(49)
        norm = nn.utils.parametrizations.spectral_norm
        return nn.Sequential(
            norm(nn.Conv2d(1, 8, 4, 2, 1)),
            nn.Softplus(),
            norm(nn.Conv2d(8, 8, 4, 2, 1)),
            nn.Softplus(),
            nn.Flatten(),
            norm(nn.Linear(32, 1)),
            nn.Flatten(0),
        )

    def loss_of(model, batch, step):
        images, real = batch
        sign = 1.0 - 2.0 * real
        loss = F.softplus(sign * model(images)).mean()
        if step % 4 == 0:
            images = images.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(model(images).sum(), images, create_graph=True)
            loss = loss + 4 * 0.5 * 0.2 * slope.pow(2).sum(dim=(1, 2, 3)).mean()
        return loss

    def loader():
        return DataLoader(TensorDataset(x, genuine), batch_size=8, shuffle=True)

    def signed(out):
        it = [0]

        def loss(model, batch):
            value = loss_of(model, batch, it[0])
            it[0] += 1
            return value

        model = net().train()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.0, 0.99))
        return tallystick.fit(model, loss, loader(), optimizer, epochs=4, out=out, progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.0, 0.99))
        for step in range(updates):
            optimizer.zero_grad()
            loss_of(model, next(batches), step).backward()
            optimizer.step()
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 48, 8, 4, False), updates, loader)


class Deep(nn.Module):
    """Residual layers, of which the loop may leave some out."""

    def __init__(self, width: int = 16, depth: int = 4):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
            for _ in range(depth)
        )
        self.last = nn.Linear(width, 4)
        self.kept = [True] * depth

    def forward(self, x):
        x = self.first(x.flatten(1))
        for block, kept in zip(self.blocks, self.kept, strict=True):
            if kept:
                x = x + block(x)
        return self.last(x)


@grid_case(
    "fit-stochastic-depth-own-random",
    "fit",
    (
        "stochastic depth by schedule",
        "python random of one's own",
        "attribute of the module",
        "structure changes by step",
        "warm-up with SequentialLR",
        "gradient accumulation",
    ),
)
def stochastic_depth() -> Loop:
    """Follows stochastic-depth scripts that draw in Python: layers are left out more and more."""
    x, y = pictures(48, 50)
    updates, accumulate = 18, 2

    def net():
        torch.manual_seed(51)
        return Deep()

    def draw(model, dice, step):
        rate = 0.5 * min(1.0, step / 12)
        depth = len(model.blocks)
        model.kept = [dice.random() >= rate * (k + 1) / depth for k in range(depth)]

    def schedule(optimizer):
        rates = torch.optim.lr_scheduler
        return rates.SequentialLR(
            optimizer,
            [
                rates.LinearLR(optimizer, 0.1, 1.0, 4),
                rates.CosineAnnealingLR(optimizer, updates - 4),
            ],
            [4],
        )

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)

    def signed(out):
        dice, calls = random.Random(7), [0]

        def loss(model, batch):
            if calls[0] % accumulate == 0:
                draw(model, dice, calls[0] // accumulate)
            calls[0] += 1
            return F.cross_entropy(model(batch[0]), batch[1])

        model = net().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
        return tallystick.fit(
            model,
            loss,
            loader(),
            optimizer,
            scheduler=schedule(optimizer),
            steps=updates,
            accumulate=accumulate,
            out=out,
            progress=False,
        )

    def plain(model, batches):
        model.train()
        dice = random.Random(7)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
        scheduler = schedule(optimizer)
        for step in range(updates):
            draw(model, dice, step)
            optimizer.zero_grad()
            for _ in range(accumulate):
                images, target = next(batches)
                (F.cross_entropy(model(images), target) / accumulate).backward()
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 48, 8, 6, False), updates, loader)
