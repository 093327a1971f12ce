"""Recipe `gpt2`: a GPT-2 of any size on bytes of text, or on the tokens of a tokenizer file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.job.recipes.base import Built, Recipe, normal
from tallystick.job.recipes.settings import StepSettings, setting
from tallystick.job.recipes.text_records import (
    SOURCES,
    build_next_token,
    check_next_token,
    next_token_data,
    vocabulary,
)
from tallystick.numerics.types import TensorType

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Gpt2Settings(StepSettings):
    """Keys of `--set`."""

    recipe: ClassVar[str] = "gpt2"

    n_layer: int = setting(4, "transformer blocks", low=1, high=1000)
    n_head: int = setting(4, "attention heads; divides n_embd", low=1, high=1000)
    n_embd: int = setting(128, "width", low=1, high=65536)
    block_size: int = setting(64, "tokens per record", low=1, high=65536)
    vocab_size: int = setting(256, "tokens in the vocabulary, at least 256", low=256, high=1 << 24)
    dropout: float = setting(0.1, "dropout after embedding, attention, projections", low=0)
    batch_size: int = setting(8, "records per step", low=1, high=1 << 20)
    weight_decay: float = setting(0.1, "applied to matrices only", low=0)
    beta2: float = setting(0.95, "used by Adam, AdamW and LAMB", low=0)
    bias: bool = setting(True, "biases in linear layers and layer norms")
    text_bytes: int = setting(1_000_000, "most bytes of the text to use; 0 = all", low=0)
    validation: float = setting(0.05, "share of the records held out", low=0, high=0.9)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.divides("n_head", "n_embd")
        self.below_one("dropout")


PRESETS = {
    "124m": {
        "n_layer": "12",
        "n_head": "12",
        "n_embd": "768",
        "block_size": "1024",
        "vocab_size": "50257",
        "lr": "0.0006",
        "warmup": "200",
    },
    "small": {"n_layer": "2", "n_head": "2", "n_embd": "64", "block_size": "64"},
}


def make_module(s: Gpt2Settings) -> nn.Module:
    """GPT-2: learned positions, pre-LN blocks, causal attention, gelu (tanh), tied head.

    Parameter names are nanoGPT's. torch's own initial weights stay in the module; the job gets
    those of `initial_weights`.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Gpt2Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c_attn = nn.Linear(s.n_embd, 3 * s.n_embd, bias=s.bias)
            self.c_proj = nn.Linear(s.n_embd, s.n_embd, bias=s.bias)
            self.resid_dropout = nn.Dropout(s.dropout)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, t, c = x.shape
            q, k, v = (
                part.view(b, t, s.n_head, c // s.n_head).transpose(1, 2)
                for part in self.c_attn(x).split(c, dim=2)
            )
            p = s.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
            y = y.transpose(1, 2).contiguous().view(b, t, c)
            out: torch.Tensor = self.resid_dropout(self.c_proj(y))
            return out

    class Gpt2Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c_fc = nn.Linear(s.n_embd, 4 * s.n_embd, bias=s.bias)
            self.c_proj = nn.Linear(4 * s.n_embd, s.n_embd, bias=s.bias)
            self.dropout = nn.Dropout(s.dropout)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.gelu(self.c_fc(x), approximate="tanh")
            out: torch.Tensor = self.dropout(self.c_proj(x))
            return out

    class Gpt2Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1 = nn.LayerNorm(s.n_embd, bias=s.bias)
            self.attn = Gpt2Attention()
            self.ln_2 = nn.LayerNorm(s.n_embd, bias=s.bias)
            self.mlp = Gpt2Mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.attn(self.ln_1(x))
            out: torch.Tensor = x + self.mlp(self.ln_2(x))
            return out

    class Gpt2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte = nn.Embedding(s.vocab_size, s.n_embd)
            self.wpe = nn.Embedding(s.block_size, s.n_embd)
            self.drop = nn.Dropout(s.dropout)
            self.h = nn.ModuleList(Gpt2Block() for _ in range(s.n_layer))
            self.ln_f = nn.LayerNorm(s.n_embd, bias=s.bias)
            self.lm_head = nn.Linear(s.n_embd, s.vocab_size, bias=False)
            self.lm_head.weight = self.wte.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.drop(self.wte(tokens) + self.wpe(positions))
            for block in self.h:
                x = block(x)
            out: torch.Tensor = self.lm_head(self.ln_f(x))
            return out

    return Gpt2()


def initial_weights(
    s: Gpt2Settings, types: Mapping[str, TensorType], seed: int
) -> dict[str, Array]:
    """GPT-2's initialisation, a function of slot names, shapes and `seed` alone.

    Matrices: normal, 0.02; projections into the residual stream: 0.02 / sqrt(2 n_layer).
    Biases: 0. Layer norm weights: 1. The draw id is the slot's place in name order.
    """
    weights: dict[str, Array] = {}
    for index, name in enumerate(sorted(types)):
        shape = types[name].shape
        if name.endswith(".bias"):
            weights[name] = np.zeros(shape, dtype=np.float32)
        elif ".ln_" in name:
            weights[name] = np.ones(shape, dtype=np.float32)
        else:
            std = 0.02 / math.sqrt(2 * s.n_layer) if name.endswith("c_proj.weight") else 0.02
            weights[name] = normal(seed, index, shape, std)
    return weights


def build(s: Gpt2Settings, fields: Mapping[str, TensorType], steps: int, seed: int) -> Built:
    """Capture the training step, the validation loss and the forward pass. Needs torch."""
    import torch

    with torch.device("meta"):
        module = make_module(s)
    optimizer = s.rule(lambda name, shape: len(shape) == 2 and name.startswith("h."))

    def weights(types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
        return initial_weights(s, types, seed)

    return build_next_token(module, optimizer, s.rates(steps), s, weights, seed)


RECIPE = Recipe(
    "gpt2",
    "a GPT-2 of any size on the bytes or tokens of a text",
    Gpt2Settings,
    SOURCES,
    next_token_data,
    build,
    PRESETS,
    check_next_token,
    derive=lambda given, sources: vocabulary(sources),
    takes=("tokenizer",),
)
