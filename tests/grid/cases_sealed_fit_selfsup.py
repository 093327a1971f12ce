"""Plain loops with a teacher, a queue, a penalty: self-supervision and adversaries."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import tallystick
import torch
from grid.case import Loop, Order, grid_case
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def two_views(count: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    middle = torch.randn(6, width, generator=generator)[torch.arange(count) % 6]
    one, two = (middle + 0.4 * torch.randn(count, width, generator=generator) for _ in range(2))
    return one, two


class Dino(nn.Module):
    """Student, teacher and the centre of the teacher's outputs."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()

        def net() -> nn.Module:
            return nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, out))

        self.student, self.teacher = net(), net()
        self.teacher.load_state_dict(self.student.state_dict())
        self.teacher.requires_grad_(False)
        self.register_buffer("center", torch.zeros(1, out))


@grid_case(
    "fit_dino_center",
    "fit",
    ("teacher as EMA with a momentum schedule", "centre buffer", "teacher temperature warm-up by a counter in a closure",
     "cosine schedule", "clipping"),
)
def fit_dino_center() -> Loop:
    """DINO's main_dino.py, tiny: momentum and temperature follow the iteration, the centre is a buffer."""
    batch, epochs, count = 8, 5, 48
    torch.manual_seed(40)
    model = Dino(8, 6)
    one, two = two_views(count, 8, 41)
    per_epoch = count // batch
    updates = per_epoch * epochs

    def momentum_at(it: int) -> float:
        return 1 - (1 - 0.9) * (math.cos(math.pi * it / updates) + 1) / 2

    def temperature_at(it: int) -> float:
        return 0.04 + (0.07 - 0.04) * min(1.0, it / (2 * per_epoch))

    def step_loss(model: Dino, batch: Any, it: int) -> Tensor:
        if it > 0:  # the teacher follows the last update
            m = momentum_at(it - 1)
            with torch.no_grad():
                for p, q in zip(model.student.parameters(), model.teacher.parameters(), strict=True):
                    q.mul_(m).add_(p, alpha=1 - m)
        views = [batch[0], batch[1]]
        students = [model.student(v) / 0.1 for v in views]
        with torch.no_grad():
            teachers = [model.teacher(v) for v in views]
            wanted = [F.softmax((t - model.center) / temperature_at(it), -1) for t in teachers]
        loss = sum(
            -(wanted[i] * F.log_softmax(students[j], -1)).sum(-1).mean() for i, j in ((0, 1), (1, 0))
        ) / 2
        with torch.no_grad():
            model.center.mul_(0.9).add_(torch.cat(teachers).mean(0, keepdim=True), alpha=0.1)
        return loss

    def signed(out: Path) -> Any:
        it = [0]

        def loss(model: Dino, batch: Any) -> Tensor:
            value = step_loss(model, batch, it[0])
            it[0] += 1
            return value

        optimizer = torch.optim.AdamW(model.student.parameters(), lr=5e-3, weight_decay=0.04)
        return tallystick.fit(
            model, loss, DataLoader(TensorDataset(one, two), batch_size=batch, shuffle=True, drop_last=True), optimizer,
            scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates), epochs=epochs, clip_norm=3.0,
            out=out,
        )

    def plain(model, batches):
        optimizer = torch.optim.AdamW(model.student.parameters(), lr=5e-3, weight_decay=0.04)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
        for it in range(updates):
            loss = step_loss(model, next(batches), it)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.student.parameters(), 3.0)
            optimizer.step()
            scheduler.step()
            yield optimizer

    return Loop(model, signed, plain, Order(True, count, batch, epochs, True), updates)


class MoCo(nn.Module):
    """The published module: queue and pointer are buffers, the key encoder follows in forward."""

    def __init__(self, width: int, dim: int, k: int, m: float, t: float) -> None:
        super().__init__()
        self.k, self.m, self.t = k, m, t
        self.encoder_q = nn.Sequential(nn.Linear(width, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, dim))
        self.encoder_k = nn.Sequential(nn.Linear(width, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, dim))
        for q, k_ in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            k_.data.copy_(q.data)
            k_.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, k), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update_key_encoder(self) -> None:
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters(), strict=True):
            k.data = k.data * self.m + q.data * (1.0 - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys: Tensor) -> None:
        count = keys.shape[0]
        ptr = int(self.queue_ptr)
        self.queue[:, ptr : ptr + count] = keys.T
        self.queue_ptr[0] = (ptr + count) % self.k

    def forward(self, im_q: Tensor, im_k: Tensor) -> Tensor:
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update_key_encoder()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        self._dequeue_and_enqueue(k)
        return torch.cat([positive, negative], 1) / self.t


@grid_case(
    "fit_moco_queue",
    "fit",
    ("memory bank with a pointer that wraps", "key encoder by momentum in forward", "BatchNorm", "drop_last",
     "rate per epoch"),
)
def fit_moco_queue() -> Loop:
    """MoCo's main_moco.py: the queue's pointer is read as a Python int, the rate falls by epoch."""
    batch, epochs, count = 8, 4, 52
    torch.manual_seed(42)
    model = MoCo(8, 6, 24, 0.95, 0.2)
    one, two = two_views(count, 8, 43)
    per_epoch = count // batch

    def rate(epoch: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * epoch / epochs))

    def criterion(model: MoCo, batch: Any) -> Tensor:
        logits = model(batch[0], batch[1])
        return F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=torch.long))

    def optimizer_of(model: MoCo) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.encoder_q.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def signed(out: Path) -> Any:
        optimizer = optimizer_of(model)
        loader = DataLoader(TensorDataset(one, two), batch_size=batch, shuffle=True, drop_last=True)
        return tallystick.fit(
            model, criterion, loader, optimizer, scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, rate),
            scheduler_every="epoch", epochs=epochs, out=out,
        )

    def plain(model, batches):
        model.train()
        optimizer = optimizer_of(model)
        for epoch in range(epochs):
            for group in optimizer.param_groups:  # adjust_learning_rate
                group["lr"] = 0.1 * rate(epoch)
            for _ in range(per_epoch):
                loss = criterion(model, next(batches))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                yield optimizer

    return Loop(model, signed, plain, Order(True, count, batch, epochs, True), per_epoch * epochs)


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.Softplus(), nn.Linear(24, 24), nn.Softplus())
        self.head = nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)).squeeze(-1)


@grid_case(
    "fit_r1_lazy",
    "fit",
    ("gradient penalty (double backward)", "lazy regularisation: if step % k == 0", "counter in a closure",
     "metrics in a Python list"),
)
def fit_r1_lazy() -> Loop:
    """StyleGAN2's discriminator step (rosinality): R1 on the real images, in each fourth step only."""
    batch, epochs, count, every, gamma = 8, 4, 56, 4, 2.0
    torch.manual_seed(44)
    model = Critic()
    generator = torch.Generator().manual_seed(45)
    real = torch.randn(count, 6, generator=generator) * 0.5 + 1
    fake = torch.randn(count, 6, generator=generator)
    per_epoch = count // batch

    def step_loss(model: Critic, batch: Any, i: int) -> Tensor:
        x, made = batch
        loss = F.softplus(-model(x)).mean() + F.softplus(model(made)).mean()
        if i % every == 0:
            x = x.detach().requires_grad_(True)
            (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            loss = loss + gamma / 2 * every * grad.pow(2).flatten(1).sum(1).mean()
        return loss

    def optimizer_of(model: Critic) -> torch.optim.Optimizer:
        ratio = every / (every + 1)  # as StyleGAN2 does for a lazy regulariser
        return torch.optim.Adam(model.parameters(), lr=8e-3 * ratio, betas=(0.0, 0.99**ratio))

    def signed(out: Path) -> Any:
        it, history = [0], []

        def loss(model: Critic, batch: Any) -> Tensor:
            value = step_loss(model, batch, it[0])
            it[0] += 1
            history.append(value.detach())
            return value

        return tallystick.fit(
            model, loss, DataLoader(TensorDataset(real, fake), batch_size=batch, shuffle=True), optimizer_of(model),
            epochs=epochs, out=out,
        )

    def plain(model, batches):
        model.train()
        optimizer = optimizer_of(model)
        for i in range(per_epoch * epochs):
            loss = step_loss(model, next(batches), i)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield optimizer

    return Loop(model, signed, plain, Order(True, count, batch, epochs, False), per_epoch * epochs)
