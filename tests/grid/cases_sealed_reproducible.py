"""Loops in a block of tallystick.reproducible: what a frame would not carry."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tallystick
import torch
from grid.case import Loop, Order, grid_case
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


@grid_case(
    "reproducible_sam_centralised",
    "reproducible",
    ("SAM: two passes for an update", "gradient centralisation", "skip-step condition", "BatchNorm",
     "last short batch", "shuffle=False"),
)
def reproducible_sam_centralised() -> Loop:
    """davda54/sam's example: two forward-backward passes, centralised gradients, wild steps are skipped."""
    batch, epochs, count, rho, limit = 8, 4, 44, 0.05, 1.25
    torch.manual_seed(80)
    model = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    generator = torch.Generator().manual_seed(81)
    x = torch.randn(count, 6, generator=generator)
    x[17] *= 30  # a wild record
    y = x[:, :3].argmax(1)
    per_epoch = math.ceil(count / batch)

    def running(model: nn.Module, on: bool) -> None:
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.momentum = 0.1 if on else 0.0  # sam's enable/disable_running_stats

    def norm_of(model: nn.Module) -> Tensor:
        return torch.stack([p.grad.pow(2).sum() for p in model.parameters()]).sum().sqrt()

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor, wanted: Tensor) -> None:
        running(model, True)
        optimizer.zero_grad()
        F.cross_entropy(model(rows), wanted, label_smoothing=0.1).backward()
        with torch.no_grad():
            scale = rho / (norm_of(model) + 1e-12)
            moved = [p.grad * scale for p in model.parameters()]
            for p, e in zip(model.parameters(), moved, strict=True):
                p.add_(e)
        running(model, False)
        optimizer.zero_grad()
        F.cross_entropy(model(rows), wanted, label_smoothing=0.1).backward()
        with torch.no_grad():
            for p, e in zip(model.parameters(), moved, strict=True):
                p.sub_(e)
            for p in model.parameters():
                if p.dim() > 1:
                    p.grad.sub_(p.grad.mean(dim=1, keepdim=True))
            if norm_of(model).item() < limit:
                optimizer.step()

    def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4, foreach=False, fused=False
        )

    def signed(out: Path) -> list[dict[str, Tensor]]:
        states = []
        optimizer = optimizer_of(model)
        kept = list(DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=False))  # they fit in memory
        model.train()
        with tallystick.reproducible("ordered/1", seed=8) as contract:
            for _ in range(epochs):
                for rows, wanted in kept:
                    step(model, optimizer, rows, wanted)
                    contract.next_step()
                    states.append(snapshot(model))
        return states

    def plain(model, batches):
        model.train()
        optimizer = optimizer_of(model)
        for _ in range(per_epoch * epochs):
            rows, wanted = next(batches)
            step(model, optimizer, rows, wanted)
            yield optimizer

    return Loop(model, signed, plain, Order(False, count, batch, epochs, False), per_epoch * epochs)


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 12, 3, padding=1)
        self.norm, self.drop, self.head = nn.GroupNorm(3, 12), nn.Dropout(0.2), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv2(F.max_pool2d(F.relu(self.conv1(x)), 2))))
        return self.head(self.drop(x.mean((2, 3))))


@grid_case(
    "reproducible_progressive_lookahead",
    "reproducible",
    ("progressive resizing by epoch", "lookahead", "validation with best model kept", "NaN guard", "dropout",
     "rate changed by assigning param_group['lr']", "python lists of metrics", "own Python random"),
)
def reproducible_progressive_lookahead() -> Loop:
    """fast.ai's progressive resizing by hand, with Lookahead (k=5), the rate halved when validation is worse."""
    import random

    batch, epochs, count, held, k = 6, 4, 36, 10, 5
    torch.manual_seed(82)
    model = Conv()
    generator = torch.Generator().manual_seed(83)
    y = torch.arange(count + held) % 4
    pattern = torch.randn(4, 1, 8, 8, generator=generator)
    x = pattern[y] + 0.6 * torch.randn(count + held, 1, 8, 8, generator=generator)
    per_epoch = count // batch

    def run(model: Conv, batches: Iterator[Any], after: Any) -> Iterator[torch.optim.Optimizer]:
        dice = random.Random(9)
        dtype = model.head.weight.dtype
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, foreach=False, fused=False)
        slow = [p.detach().clone() for p in model.parameters()]
        best, kept, losses, it = math.inf, None, [], 0
        for epoch in range(epochs):
            model.train()
            for i in range(per_epoch):
                rows, wanted = next(batches)
                if epoch < 2:
                    rows = F.avg_pool2d(rows, 2)
                if dice.random() < 0.5:
                    rows = rows.flip(-1)
                loss = F.cross_entropy(model(rows), wanted)
                if not math.isfinite(loss.item()):
                    raise RuntimeError("the loss is not finite")
                losses.append(loss.item())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                it += 1
                if it % k == 0:
                    with torch.no_grad():
                        for s, p in zip(slow, model.parameters(), strict=True):
                            s.add_(p - s, alpha=0.5)
                            p.copy_(s)
                if i == per_epoch - 1:
                    model.eval()
                    with torch.no_grad():
                        value = F.cross_entropy(model(x[count:].to(dtype)), y[count:]).item()
                    if value < best:
                        best, kept = value, snapshot(model)
                    else:
                        for group in optimizer.param_groups:
                            group["lr"] *= 0.5
                    model.train()
                after()
                yield optimizer
        assert kept is not None and len(losses) == it

    def signed(out: Path) -> list[dict[str, Tensor]]:
        states = []
        loader = DataLoader(TensorDataset(x[:count], y[:count]), batch_size=batch, shuffle=False)
        with tallystick.reproducible("ordered/1", seed=9) as contract:
            for _ in run(model, forever(loader), contract.next_step):
                states.append(snapshot(model))
        return states

    def plain(model, batches):
        yield from run(model, batches, lambda: None)

    return Loop(model, signed, plain, Order(False, count, batch, epochs, False), per_epoch * epochs)
