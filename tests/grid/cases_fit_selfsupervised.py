"""Self-supervised losses in a plain loop: BYOL's and DINO's teachers, MoCo's queue."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import tallystick


def two_views(count: int, seed: int, width: int = 8) -> TensorDataset:
    """Records of two views each: the same point, and other noise."""
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=made)
    views = [x + 0.2 * torch.randn(count, width, generator=made) for _ in range(2)]
    return TensorDataset(*views)


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers with batch norms and ReLUs between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise(widths[:-1]):
        layers += [nn.Linear(a, b, bias=False), nn.BatchNorm1d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


@torch.no_grad()
def update_momentum(net: nn.Module, averaged: nn.Module, m: float) -> None:
    """As lightly has it: averaged = m * averaged + (1 - m) * net."""
    for new, kept in zip(net.parameters(), averaged.parameters(), strict=True):
        kept.data = kept.data * m + new.data * (1.0 - m)


class Byol(nn.Module):
    """An online net with a predictor, and its averaged copy."""

    def __init__(self):
        super().__init__()
        self.online = mlp(8, 16, 6)
        self.predictor = mlp(6, 12, 6)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x):
        return self.predictor(self.online(x))

    def aim(self, x):
        return self.target(x).detach()


@grid_case(
    "fit-byol-momentum-schedule",
    "fit",
    (
        "target EMA as a submodule",
        "momentum by a cosine of the step",
        "BatchNorm in the target",
        "EMA before the forward pass",
        "counter in a closure",
        "SGD",
    ),
)
def byol() -> Loop:
    """Follows lightly's BYOL example: update_momentum first, its m from a cosine schedule."""
    data, updates = two_views(48, 71), 24

    def net():
        torch.manual_seed(72)
        return Byol()

    def momentum(step):
        return 1.0 - (1.0 - 0.9) * (math.cos(math.pi * step / updates) + 1) / 2

    def loss_of(model, batch, step):
        update_momentum(model.online, model.target, m=momentum(step))
        one, two = batch
        p0, p1 = model(one), model(two)
        z0, z1 = model.aim(one), model.aim(two)
        return -0.5 * (F.cosine_similarity(p0, z1).mean() + F.cosine_similarity(p1, z0).mean())

    def trained(model):
        return [*model.online.parameters(), *model.predictor.parameters()]

    def loader():
        return DataLoader(data, batch_size=8, shuffle=True, drop_last=True)

    def signed(out):
        it = [0]

        def loss(model, batch):
            value = loss_of(model, batch, it[0])
            it[0] += 1
            return value

        model = net().train()
        optimizer = torch.optim.SGD(trained(model), lr=0.1, momentum=0.9, weight_decay=1e-3)
        return tallystick.fit(model, loss, loader(), optimizer, epochs=4, out=out, progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.SGD(trained(model), lr=0.1, momentum=0.9, weight_decay=1e-3)
        for step in range(updates):
            optimizer.zero_grad()
            loss_of(model, next(batches), step).backward()
            optimizer.step()
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 48, 8, 4, True), updates, loader)


class Dino(nn.Module):
    """Student, teacher, and the centre of the teacher's outputs."""

    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(
            nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 10)
        )
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(1, 10))


@grid_case(
    "fit-dino-centre-temperature",
    "fit",
    (
        "teacher EMA",
        "centre as a buffer",
        "teacher temperature warmed up by epoch",
        "weight EMA with a fixed rate",
        "clipping",
        "warm-up then cosine by LambdaLR",
        "AdamW",
    ),
)
def dino() -> Loop:
    """Follows DINO's loss: sharpened and centred teacher, temperature from a table by epoch."""
    data, epochs, per_epoch = two_views(50, 73), 4, 7
    updates = epochs * per_epoch
    temperatures = [0.04, 0.05, 0.06, 0.07]

    def net():
        torch.manual_seed(74)
        return Dino()

    def loss_of(model, batch, epoch):
        update_momentum(model.student, model.teacher, m=0.95)
        views = torch.cat(batch)
        student = model.student(views) / 0.1
        with torch.no_grad():
            raw = model.teacher(views)
        aim = F.softmax((raw - model.centre) / temperatures[epoch], dim=-1).chunk(2)
        seen = F.log_softmax(student, dim=-1).chunk(2)
        loss = -((aim[0] * seen[1]).sum(-1).mean() + (aim[1] * seen[0]).sum(-1).mean()) / 2
        with torch.no_grad():
            model.centre = model.centre * 0.9 + raw.mean(dim=0, keepdim=True) * 0.1
        return loss

    def rate(step):
        if step < 5:
            return (step + 1) / 5
        return 0.5 * (1 + math.cos(math.pi * (step - 5) / (updates - 5)))

    def loader():
        return DataLoader(data, batch_size=8, shuffle=True)

    def signed(out):
        seen = {"batches": 0}

        def loss(model, batch):
            epoch = min(epochs - 1, seen["batches"] // per_epoch)
            seen["batches"] += 1
            return loss_of(model, batch, epoch)

        model = net().train()
        optimizer = torch.optim.AdamW(model.student.parameters(), lr=5e-3, weight_decay=0.04)
        return tallystick.fit(
            model,
            loss,
            loader(),
            optimizer,
            epochs=epochs,
            clip_norm=3.0,
            out=out,
            progress=False,
            scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, rate),
        )

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.AdamW(model.student.parameters(), lr=5e-3, weight_decay=0.04)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        for epoch in range(epochs):
            for _ in range(per_epoch):
                optimizer.zero_grad()
                loss_of(model, next(batches), epoch).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 3.0)
                optimizer.step()
                scheduler.step()
                yield optimizer

    return Loop(net(), signed, plain, Order(True, 50, 8, epochs, False), updates, loader)


class Moco(nn.Module):
    """Query and key encoders, and a queue of keys with its pointer, as facebookresearch/moco."""

    def __init__(self, dim: int = 6, size: int = 24, m: float = 0.9, temperature: float = 0.2):
        super().__init__()
        self.m, self.temperature, self.size = m, temperature, size
        self.encoder_q = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, dim))
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(dim, size), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            k.data = k.data * self.m + q.data * (1.0 - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        count = keys.shape[0]
        ptr = int(self.queue_ptr)
        assert self.size % count == 0
        self.queue[:, ptr : ptr + count] = keys.T
        self.queue_ptr[0] = (ptr + count) % self.size

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update_key_encoder()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone().detach()
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        self._dequeue_and_enqueue(k)
        return logits, torch.zeros(len(logits), dtype=torch.long)


@grid_case(
    "fit-moco-queue",
    "fit",
    (
        "memory bank as a buffer",
        "pointer read by int()",
        "key encoder EMA in forward",
        "MultiStepLR each epoch",
        "drop_last",
        "SGD with decay",
    ),
)
def moco() -> Loop:
    """Follows facebookresearch/moco: the queue, its pointer and the key encoder live in forward."""
    data, epochs, per_epoch = two_views(52, 75), 4, 6

    def net():
        torch.manual_seed(76)
        return Moco()

    def loss(model, batch):
        logits, labels = model(im_q=batch[0], im_k=batch[1])
        return F.cross_entropy(logits, labels)

    def made(model):
        optimizer = torch.optim.SGD(
            [p for p in model.parameters() if p.requires_grad], 0.2, momentum=0.9, weight_decay=1e-3
        )
        return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3], gamma=0.1)

    def loader():
        return DataLoader(data, batch_size=8, shuffle=True, drop_last=True)

    def signed(out):
        model = net().train()
        optimizer, scheduler = made(model)
        return tallystick.fit(
            model,
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
        optimizer, scheduler = made(model)
        for _ in range(epochs):
            for step in range(per_epoch):
                optimizer.zero_grad()
                loss(model, next(batches)).backward()
                optimizer.step()
                if step == per_epoch - 1:
                    scheduler.step()
                yield optimizer

    return Loop(net(), signed, plain, Order(True, 52, 8, epochs, True), epochs * per_epoch, loader)
