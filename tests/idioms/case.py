"""The form of an idiom: a small module and a loss around Python state that changes between calls.

A batch is always {"x": float32 [8, 4], "y": int64 [8] in 0..2}. A harmless idiom is one function of
parameters and batch at every call. A harmful one takes `flip`, the call (counted from 1) from which
its numbers or its structure differ from those of the calls before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Loss = Callable[[nn.Module, dict[str, torch.Tensor]], torch.Tensor]


@dataclass
class Idiom:
    module: nn.Module
    loss: Loss
    optimizer: Any = None


HARMLESS: dict[str, Callable[[], Idiom]] = {}
HARMFUL: dict[str, Callable[[int], Idiom]] = {}


def _enter(registry: dict[str, Any], name: str) -> Callable[[Any], Any]:
    def enter(make: Any) -> Any:
        if name in HARMLESS or name in HARMFUL:
            raise ValueError(f"The idiom {name} is there twice.")
        registry[name] = make
        return make

    return enter


def harmless(name: str) -> Callable[[Any], Any]:
    return _enter(HARMLESS, name)


def harmful(name: str) -> Callable[[Any], Any]:
    return _enter(HARMFUL, name)
