"""One row's case: a module, its loss, and its batches."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True)
class Case:
    """`build` makes the module in training mode; `batch` draws the batch of one step.

    A `drawn` case has random numbers of the contract in its forward pass. Then torch is given the
    contract's, by the comparison that `save_job` makes (PROGRAM 5.9), for the first step alone.
    """

    family: str
    name: str
    build: Callable[[], nn.Module]
    loss: Loss
    batch: Callable[[torch.Generator], Batch]
    slow: bool = False
    drawn: bool = False
    rate: float = 0.01

    @property
    def needs(self) -> str:
        """The library that the case is about."""
        first = self.family.split()[0]
        return first if first in ("transformers", "peft", "diffusers") else "torch"

    @property
    def title(self) -> str:
        """Family and name, as `--only` matches them."""
        return f"{self.family}: {self.name}"


def floats(g: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers, float32."""
    return torch.randn(shape, generator=g)


def integers(g: torch.Generator, below: int, *shape: int) -> Tensor:
    """Integers in [0, below), int64."""
    return torch.randint(below, shape, generator=g)


def padded(g: torch.Generator, rows: int, length: int, left: bool = False) -> Tensor:
    """A 2-D attention mask, int64: the first row is whole, the others are padded."""
    mask = torch.ones(rows, length, dtype=torch.int64)
    for row in range(1, rows):
        cut = int(torch.randint(1, length // 2, (), generator=g))
        if left:
            mask[row, :cut] = 0
        else:
            mask[row, length - cut :] = 0
    return mask


def library(name: str) -> Any:
    """An optional library, imported when a case needs it."""
    return importlib.import_module(name)
