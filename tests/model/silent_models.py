"""Models that hold a function of their own, to be captured (PROGRAM 5.7, 5.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.program.capture import CapturedStep, capture
from tallystick.program.optimizers import SGD

X = {"x": ((3, 4), "f32")}
Body = Callable[[Any, Tensor], Tensor]


def squares(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    y: Tensor = module(batch["x"])
    return (y * y).sum()


class Inner(nn.Module):
    """Runs a function of itself and x, so that the function may keep something in it."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = [body]
        self.count = 0
        self.seen: list[int] = []
        self.last: Tensor | None = None
        self.weight = nn.Parameter(torch.full((4,), 1.25))
        self.register_buffer("running", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.body[0](self, x)


class Outer(nn.Module):
    def __init__(self, body: Body = lambda m, x: x * m.weight) -> None:
        super().__init__()
        self.linear, self.inner, self.out = nn.Linear(4, 4), Inner(body), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.inner(self.linear(x)))
        return y


def captured(body: Body, **more: Any) -> CapturedStep:
    torch.manual_seed(3)
    return capture(Outer(body), squares, X, SGD(0.1), outputs_grads=True, **more)
