"""Image nets in a plain loop: mixup and OneCycle, growing images, early stop."""

from __future__ import annotations

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import tallystick

STEPS_SEEN = 0  # fit-progressive-resizing counts its batches here, as its script does


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
    "fit-convnet-onecycle-mixup",
    "fit",
    (
        "BatchNorm",
        "mixup with a fixed coefficient",
        "label smoothing",
        "OneCycleLR each step",
        "parameter groups without decay",
        "a last short batch",
        "shuffle",
        "Nesterov",
        "clipping",
    ),
)
def convnet_onecycle() -> Loop:
    """Follows fast CIFAR scripts: SGD with OneCycle, and mixup with the batch turned round."""
    x, y = pictures(45, 41)
    epochs, per_epoch = 5, 6
    updates = epochs * per_epoch

    def net():
        torch.manual_seed(42)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(32, 4),
        )

    def groups(model):
        decay = [p for p in model.parameters() if p.ndim > 1]
        rest = [p for p in model.parameters() if p.ndim <= 1]
        return [{"params": decay, "weight_decay": 5e-3}, {"params": rest, "weight_decay": 0.0}]

    def mixed(model, batch):
        images, target = batch
        lam = 0.7
        logits = model(lam * images + (1 - lam) * images.flip(0))
        one = F.cross_entropy(logits, target, label_smoothing=0.1)
        other = F.cross_entropy(logits, target.flip(0), label_smoothing=0.1)
        return lam * one + (1 - lam) * other

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)

    def signed(out):
        model = net().train()
        optimizer = torch.optim.SGD(groups(model), lr=0.1, momentum=0.9, nesterov=True)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=updates)
        return tallystick.fit(
            model,
            mixed,
            loader(),
            optimizer,
            scheduler=scheduler,
            epochs=epochs,
            clip_norm=2.0,
            out=out,
            progress=False,
        )

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.SGD(groups(model), lr=0.1, momentum=0.9, nesterov=True)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=updates)
        for _ in range(updates):
            optimizer.zero_grad()
            mixed(model, next(batches)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 45, 8, epochs, False), updates, loader)


@grid_case(
    "fit-progressive-resizing",
    "fit",
    (
        "progressive resizing by epoch",
        "counter in the module's globals",
        "torch.compile(model)",
        "cosine each epoch",
        "drop_last",
        "GroupNorm",
    ),
)
def progressive_resizing() -> Loop:
    """Follows fastai-style scripts: images of 4, then 6, then 8 pixels; the count is a global."""
    x, y = pictures(34, 43)
    epochs, per_epoch = 6, 4

    def net():
        torch.manual_seed(44)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 4),
        )

    def loss_at(model, batch, epoch):
        images, target = batch
        size = (4, 6, 8)[min(2, epoch // 2)]
        if size < images.shape[-1]:
            images = F.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
        return F.cross_entropy(model(images), target)

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, drop_last=True)

    def signed(out):
        global STEPS_SEEN
        STEPS_SEEN = 0

        def loss(model, batch):
            global STEPS_SEEN
            epoch = STEPS_SEEN // per_epoch
            STEPS_SEEN += 1
            return loss_at(model, batch, epoch)

        model = net().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        return tallystick.fit(
            torch.compile(model),
            loss,
            loader(),
            optimizer,
            scheduler=scheduler,
            scheduler_every="epoch",
            epochs=epochs,
            out=out,
            progress=False,
        )

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        for epoch in range(epochs):
            for step in range(per_epoch):
                optimizer.zero_grad()
                loss_at(model, next(batches), epoch).backward()
                optimizer.step()
                if step == per_epoch - 1:
                    scheduler.step()
                yield optimizer

    return Loop(net(), signed, plain, Order(True, 34, 8, epochs, True), epochs * per_epoch, loader)


@grid_case(
    "fit-early-stop-best",
    "fit",
    (
        "ExponentialLR each epoch",
        "early stopping on validation",
        "best model kept",
        "validation not divisible by the batch",
        "dropout",
        "BatchNorm",
        "best loss in python",
    ),
)
def early_stop() -> Loop:
    """Follows transfer-learning scripts; the held-out labels differ, so it stops after 4 epochs."""
    x, y = pictures(40, 45)
    held_x, held_y = pictures(27, 46)
    held_y = (held_y + 1) % 4
    per_epoch, patience, stops_after = 5, 3, 4

    def net():
        torch.manual_seed(47)
        return nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(96, 4),
        )

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    def loader():
        return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)

    def signed(out):
        model = net().train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        return tallystick.fit(
            model,
            loss,
            loader(),
            optimizer,
            epochs=10,
            out=out,
            progress=False,
            scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8),
            scheduler_every="epoch",
            validation=DataLoader(TensorDataset(held_x, held_y), batch_size=8),
            stop=tallystick.StopRule(patience=patience),
            best=True,
        )

    def plain(model, batches):
        kind = next(model.parameters()).dtype
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        best, bad = float("inf"), 0
        for _ in range(10):
            for step in range(per_epoch):
                model.train()
                optimizer.zero_grad()
                loss(model, next(batches)).backward()
                optimizer.step()
                if step == per_epoch - 1:
                    model.eval()
                    with torch.no_grad():
                        held = loss(model, (held_x.to(kind), held_y)).item()
                    scheduler.step()
                    best, bad = (held, 0) if held < best else (best, bad + 1)
                yield optimizer
            if bad >= patience:
                return

    return Loop(
        net(), signed, plain, Order(True, 40, 8, 10, False), stops_after * per_epoch, loader
    )
