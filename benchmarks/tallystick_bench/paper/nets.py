"""The networks of Verde's tables, at their shapes, as far as they fit in this machine's memory.

A decoder of L equal layers is measured as one layer and as its embedding and head alone. The whole
model's time is L times the layer's and once the head's; the rows say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tallystick.program.optimizers import Adam
from tallystick_bench.step_blocks import Distil, Llama
from tallystick_bench.step_models import Net

OWN_LOGIT = 5.0


@dataclass(frozen=True)
class Piece:
    """A network, or a piece of one: `times` it stands in the whole model.

    `what` says its size in words. With `adapters`, only low-rank adapters are trained.
    """

    times: float
    what: str
    width: int
    heads: int
    shared: int
    inner: int
    layers: int
    words: int
    batch: tuple[int, int]
    adapters: bool = False

    def net(self) -> Net:
        """The module with random weights, its loss, batch and optimizer (Adam, as in Verde)."""
        torch.manual_seed(1)
        rows, length = self.batch
        module: nn.Module = Llama(
            self.words, self.width, self.heads, self.shared, self.layers, self.inner
        )
        if not self.layers:
            # Tied, and with no layer between: a token's own logit is the weights' deviation times
            # the width, 82 for Llama-8B. The others' gradients would be near e^-82, subnormal, and
            # products of subnormals take many times as long on x86.
            nn.init.normal_(module.get_parameter("embed.weight"), std=OWN_LOGIT / self.width)
        if self.adapters:
            _adapt(module)
        tokens = torch.randint(self.words, (rows, length + 1))
        return Net(module, _next_token, {"tokens": tokens}, Adam(1e-4))


@dataclass(frozen=True)
class Whole(Piece):
    """DistilBERT, which fits as it is."""

    def net(self) -> Net:
        torch.manual_seed(1)
        rows, length = self.batch
        module = Distil(self.words, self.width, self.heads, self.layers)
        batch = {
            "tokens": torch.randint(self.words, (rows, length)),
            "y": torch.randint(2, (rows,)),
        }
        return Net(module, _two_labels, batch, Adam(1e-4))


def _two_labels(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(batch["tokens"]), batch["y"])


def _next_token(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    logits = module(batch["tokens"][:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch["tokens"][:, 1:].flatten())


def forward(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Inference: the logits of every place."""
    found: Tensor = module(batch["tokens"])
    return found


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of rank `rank` beside it (Hu et al. 2021)."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * base.in_features**-0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + F.linear(F.linear(x, self.a), self.b)
        return found


RANK = 8


def _adapt(module: nn.Module) -> None:
    """Freeze every weight; adapters on queries and values. A head alone trains its last norm."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    trained: Any = module
    for layer in trained.layers:
        layer.attention.q = Adapted(layer.attention.q, RANK)
        layer.attention.v = Adapted(layer.attention.v, RANK)
    if not len(trained.layers):
        trained.norm.weight.requires_grad_(True)


_1B: dict[str, Any] = {"width": 2048, "heads": 32, "shared": 8, "inner": 8192}
_8B: dict[str, Any] = {"width": 4096, "heads": 32, "shared": 8, "inner": 14336}
_VOCABULARY = 128_256
# A layer's piece has an embedding too; it is this small.
_LEAST = 256
_BATCH = (2, 64)


def _decoder(shape: dict[str, Any], layers: int, parts: int, adapters: bool) -> dict[str, Piece]:
    """The pieces of a decoder: a layer, and `parts`-th of its embedding and head."""
    some = f"{_VOCABULARY // parts:,} of {_VOCABULARY:,} words" if parts > 1 else "the head whole"
    return {
        "layer": Piece(
            layers, f"1 of {layers} layers", **shape, layers=1, words=_LEAST, batch=_BATCH,
            adapters=adapters,
        ),
        "head": Piece(
            parts, some, **shape, layers=0, words=_VOCABULARY // parts, batch=_BATCH,
            adapters=adapters,
        ),
    }  # fmt: skip


_DISTIL = Whole(1, "whole, 66M", 768, 12, 12, 3072, 6, 30522, (8, 64))
# (model, task) -> its pieces by name.
TASKS: dict[tuple[str, str], dict[str, Piece]] = {
    ("distilbert", "inference"): {"whole": _DISTIL},
    ("distilbert", "training"): {"whole": _DISTIL},
    ("llama-1b", "inference"): _decoder(_1B, 16, 1, False),
    ("llama-1b", "training"): _decoder(_1B, 16, 4, False),
    ("llama-8b", "inference"): _decoder(_8B, 32, 4, False),
    ("llama-8b", "lora"): _decoder(_8B, 32, 4, True),
}
_TINY: dict[str, Any] = {"width": 32, "heads": 4, "shared": 2, "inner": 64}
QUICK: dict[tuple[str, str], dict[str, Piece]] = {
    ("distilbert-tiny", "inference"): {"whole": Whole(1, "tiny", 32, 2, 2, 128, 1, 64, (2, 8))},
    ("llama-tiny", "training"): {
        "layer": Piece(2, "1 of 2 layers", **_TINY, layers=1, words=32, batch=(2, 8)),
        "head": Piece(1, "the head whole", **_TINY, layers=0, words=64, batch=(2, 8)),
    },
    ("llama-tiny", "lora"): {
        "layer": Piece(1, "1 of 2", **_TINY, layers=1, words=32, batch=(2, 8), adapters=True)
    },
}
