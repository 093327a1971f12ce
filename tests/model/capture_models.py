"""Models for the capture tests: three of ours, and modules nobody wrote for the purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BatchSpec = dict[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Case:
    """A module factory, its loss, and the batch: name -> (shape, "f32") or (shape, "i64<N>")."""

    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, dict[str, Tensor]], Any]
    batch: BatchSpec

    def schema(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """The batch as (shape, dtype) pairs."""
        return {k: (shape, kind[:3]) for k, (shape, kind) in self.batch.items()}

    def example(self, seed: int) -> dict[str, Tensor]:
        """A random batch; `i64<N>` tensors have values in [0, N)."""
        generator = torch.Generator().manual_seed(seed)
        made: dict[str, Tensor] = {}
        for name, (shape, kind) in self.batch.items():
            if kind == "f32":
                made[name] = torch.randn(shape, generator=generator)
            else:
                made[name] = torch.randint(int(kind[3:]), shape, generator=generator)
        return made


class Mlp(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(20, 33)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(33, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.drop(F.relu(self.hidden(x))))
        return out


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        parts = self.qkv(self.ln1(x)).split(c, dim=2)
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + self.drop(self.proj(y.transpose(1, 2).contiguous().view(b, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh")))


class Gpt(nn.Module):
    """GPT-2's shape in small, its input embedding tied to the output."""

    def __init__(self, vocab: int = 61, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(12, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, idx: Tensor) -> Tensor:
        x = self.drop(self.wte(idx) + self.wpe(torch.arange(idx.size(1))))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


class Recurrent(nn.Module):
    """An LSTM cell and a GRU cell over three time steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(8, 6), nn.GRUCell(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden, state, cell = torch.zeros(4, 5), torch.zeros(4, 6), torch.zeros(4, 6)
        for t in range(x.size(1)):
            state, cell = self.lstm(x[:, t], (state, cell))
            hidden = self.gru(state, hidden)
        return hidden


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y, weights = self.attention(x, x, x)
        return torch.cat([y, weights], dim=2)


class Residual(nn.Module):
    """A small ResNet: batch normalisation in every form, max pooling, a strided shortcut."""

    def __init__(self, frozen: bool = False) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.pool = nn.MaxPool2d(3, 2, 1, ceil_mode=True)
        self.conv, self.bare = nn.Conv2d(6, 8, 3, 2, 1), nn.BatchNorm2d(8, affine=False)
        self.shortcut = nn.Conv2d(6, 8, 1, 2)
        self.last = nn.BatchNorm1d(8, track_running_stats=False)
        self.head = nn.Linear(8, 10)
        if frozen:
            with torch.no_grad():
                self.norm.running_mean = torch.linspace(-0.3, 0.3, 6)  # type: ignore[assignment]
                self.norm.running_var = torch.linspace(0.5, 2.0, 6)  # type: ignore[assignment]
        self.frozen = frozen

    def forward(self, x: Tensor) -> Tensor:
        self.norm.train(self.training and not self.frozen)
        x = self.pool(F.relu(self.norm(self.stem(x))))
        x = F.relu(self.bare(self.conv(x)) + self.shortcut(x))
        out: Tensor = self.head(self.last(F.adaptive_avg_pool2d(x, 1).flatten(1)))
        return out


def classify(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(batch["x"]), batch["y"])


def next_token(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(batch["x"]).flatten(0, 1), batch["y"].flatten())


def regress(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.mse_loss(module(batch["x"]), batch["y"])


def encoder(norm_first: bool) -> nn.Module:
    return nn.TransformerEncoderLayer(
        16, 4, 24, dropout=0.0, batch_first=True, norm_first=norm_first, activation="gelu"
    )


_TOKENS: BatchSpec = {"x": ((3, 12), "i64061"), "y": ((3, 12), "i64061")}
_SEQUENCE: BatchSpec = {"x": ((3, 5, 16), "f32"), "y": ((3, 5, 16), "f32")}
_IMAGES: BatchSpec = {"x": ((5, 3, 12, 11), "f32"), "y": ((5,), "i64010")}

CASES: dict[str, Case] = {
    "logreg": Case(
        lambda: nn.Linear(20, 10), classify, {"x": ((7, 20), "f32"), "y": ((7,), "i64010")}
    ),
    "mlp": Case(Mlp, classify, {"x": ((7, 20), "f32"), "y": ((7,), "i64010")}),
    "gpt": Case(Gpt, next_token, _TOKENS),
    "encoder-post": Case(lambda: encoder(False), regress, _SEQUENCE),
    "encoder-pre": Case(lambda: encoder(True), regress, _SEQUENCE),
    "recurrent": Case(Recurrent, regress, {"x": ((4, 3, 8), "f32"), "y": ((4, 5), "f32")}),
    "resnet": Case(Residual, classify, _IMAGES),
    "resnet-frozen": Case(lambda: Residual(frozen=True), classify, _IMAGES),
    "attention": Case(SelfAttention, regress, {"x": ((3, 5, 16), "f32"), "y": ((3, 5, 21), "f32")}),
}


def _causal_logits(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """transformers models with mask and positions given, so that they do not look at values."""
    length = batch["x"].size(1)
    banned = torch.ones(length, length, dtype=torch.bool).triu(1)
    mask = torch.zeros(1, 1, length, length).masked_fill(banned, float("-inf"))
    positions = torch.arange(length).unsqueeze(0)
    logits: Tensor = module(
        input_ids=batch["x"], attention_mask=mask, position_ids=positions, use_cache=False
    ).logits
    return F.cross_entropy(logits.flatten(0, 1), batch["y"].flatten())


def transformers_cases() -> dict[str, Case]:
    """GPT2LMHeadModel and LlamaForCausalLM in small. ImportError without transformers."""
    import transformers as hf

    gpt2 = hf.GPT2Config(
        vocab_size=61, n_positions=12, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0,
        attn_pdrop=0.0, embd_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    llama = hf.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=12,
    )  # fmt: skip
    return {
        "hf-gpt2": Case(lambda: hf.GPT2LMHeadModel(gpt2), _causal_logits, _TOKENS),
        "hf-llama": Case(lambda: hf.LlamaForCausalLM(llama), _causal_logits, _TOKENS),
    }
