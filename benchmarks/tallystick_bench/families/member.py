"""One model of a family: how it is built, its step, its batches and its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tallystick.program.optimizers import SGD, Adam, AdamW, Optimizer
from tallystick_bench.coverage.case import Batch, Case

ADAMW = AdamW(lr=2e-3, weight_decay=0.05)
MOMENTUM = SGD(lr=0.02, momentum=0.9, weight_decay=1e-3)


@dataclass(frozen=True)
class Member:
    """`step` is a loss of (module, batch), or with several optimizers a step function of
    (module, batch, update), as `tallystick.capture` takes them (PROGRAM 5.16)."""

    family: str
    name: str
    build: Callable[[], nn.Module]
    step: Callable[..., Any]
    batch: Callable[[torch.Generator], Batch]
    optimizer: Optimizer | Mapping[str, Optimizer] = ADAMW
    needs: str = "torch"

    @property
    def title(self) -> str:
        """Family and name, as `--only` matches them."""
        return f"{self.family}: {self.name}"


def of_case(case: Case, optimizer: Optimizer) -> Member:
    """A row of the coverage table as a member."""
    return Member(
        case.family, case.name, case.build, case.loss, case.batch, optimizer, case.needs
    )  # fmt: skip


def torchs(optimizer: Optimizer, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """torch's own optimizer of the same rule, one tensor after another."""
    one_by_one = {"foreach": False}
    if isinstance(optimizer, SGD):
        return torch.optim.SGD(
            parameters,
            lr=float(optimizer.lr),
            momentum=optimizer.momentum,
            dampening=optimizer.dampening,
            weight_decay=optimizer.weight_decay,
            nesterov=optimizer.nesterov,
            **one_by_one,
        )
    kind = torch.optim.AdamW if isinstance(optimizer, AdamW) else torch.optim.Adam
    assert isinstance(optimizer, (Adam, AdamW))
    return kind(
        parameters,
        lr=float(optimizer.lr),
        betas=optimizer.betas,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        **one_by_one,
    )
