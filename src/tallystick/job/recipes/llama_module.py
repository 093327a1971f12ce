"""The module of the recipes `llama` and `llama-lora`: RMS norms, rotary positions, grouped-query
attention, gated SiLU (Touvron et al. 2023; Grattafiori et al. 2024)."""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from torch import nn

INVERSE_FREQUENCIES = "rotary_emb.inv_freq"
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


class Sizes(Protocol):
    """The settings that the module reads."""

    @property
    def n_layer(self) -> int: ...
    @property
    def n_head(self) -> int: ...
    @property
    def n_kv_head(self) -> int: ...
    @property
    def n_embd(self) -> int: ...
    @property
    def intermediate(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def tied(self) -> bool: ...
    @property
    def rope_theta(self) -> float: ...
    @property
    def rope_factor(self) -> float: ...
    @property
    def rope_low(self) -> float: ...
    @property
    def rope_high(self) -> float: ...
    @property
    def rope_original(self) -> int: ...


class Projection(Protocol):
    """Makes a projection: `projection("q_proj", inside, out)` is a module from f32[..., inside] to
    f32[..., out]."""

    def __call__(self, name: str, inside: int, out: int) -> Any: ...


def inverse_frequencies(s: Sizes) -> npt.NDArray[np.float32]:
    """The angle of each pair of a head's numbers at position 1, f32[head / 2].

    theta^(-2i / head), computed with 50 decimal digits and rounded once, so that it is the same on
    every machine. With `rope_factor` above 1 the long waves are stretched by it and the middle ones
    in part, as Llama 3.1 does ("llama3" in transformers' `rope_parameters`).
    """
    head = s.n_embd // s.n_head
    low, high, factor = (Decimal(v) for v in (s.rope_low, s.rope_high, s.rope_factor))
    found = []
    with decimal.localcontext(decimal.Context(prec=50)):
        for pair in range(0, head, 2):
            each = Decimal(s.rope_theta) ** (Decimal(-pair) / head)
            waves = s.rope_original * each / (2 * _PI)  # waves in the first training's length
            if s.rope_factor > 1 and waves < high:
                part = max(Decimal(0), (waves - low) / (high - low))
                each = (1 - part) * each / factor + part * each
            found.append(float(each))
    return np.array(found, dtype=np.float64).astype(np.float32)


def make_module(s: Sizes, projection: Projection | None = None) -> nn.Module:
    """A Llama: i64[n, length] to logits f32[n, length, vocab_size].

    Parameter names are those of transformers' LlamaForCausalLM. `projection` makes the layers of
    attention and feed-forward; nn.Linear without bias by default. torch's own initial weights stay
    in the module; the job gets those of `initial_state`, or a checkpoint's.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    head = s.n_embd // s.n_head
    groups = s.n_head // s.n_kv_head

    def linear(name: str, inside: int, out: int) -> Any:
        return nn.Linear(inside, out, bias=False)

    make = projection or linear

    def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        one, two = x.chunk(2, -1)
        return x * cos + torch.cat((-two, one), -1) * sin

    def repeated(x: torch.Tensor) -> torch.Tensor:
        """Each key head once for each of the query heads that share it."""
        if groups == 1:
            return x
        b, shared, t, c = x.shape
        return x[:, :, None].expand(b, shared, groups, t, c).reshape(b, shared * groups, t, c)

    class RmsNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(s.n_embd))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + s.norm_eps)
            return self.weight * (x * scale)

    class Rotary(nn.Module):
        inv_freq: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("inv_freq", torch.empty(head // 2), persistent=False)
            if not self.inv_freq.is_meta:
                self.inv_freq.copy_(torch.from_numpy(inverse_frequencies(s)))

        def forward(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
            places = torch.arange(length, device=self.inv_freq.device).float()
            angles = places[:, None] * self.inv_freq[None, :]
            twice = torch.cat((angles, angles), -1)
            return twice.cos(), twice.sin()

    class LlamaAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj = make("q_proj", s.n_embd, s.n_head * head)
            self.k_proj = make("k_proj", s.n_embd, s.n_kv_head * head)
            self.v_proj = make("v_proj", s.n_embd, s.n_kv_head * head)
            self.o_proj = make("o_proj", s.n_head * head, s.n_embd)

        def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
            b, t, _ = x.shape
            q = self.q_proj(x).view(b, t, s.n_head, head).transpose(1, 2)
            k = self.k_proj(x).view(b, t, s.n_kv_head, head).transpose(1, 2)
            v = self.v_proj(x).view(b, t, s.n_kv_head, head).transpose(1, 2)
            q, k = rotated(q, cos, sin), repeated(rotated(k, cos, sin))
            p = s.attention_dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, repeated(v), dropout_p=p, is_causal=True)
            out: torch.Tensor = self.o_proj(y.transpose(1, 2).reshape(b, t, s.n_head * head))
            return out

    class LlamaMlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_proj = make("gate_proj", s.n_embd, s.intermediate)
            self.up_proj = make("up_proj", s.n_embd, s.intermediate)
            self.down_proj = make("down_proj", s.intermediate, s.n_embd)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
            return out

    class LlamaBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.self_attn = LlamaAttention()
            self.mlp = LlamaMlp()
            self.input_layernorm = RmsNorm()
            self.post_attention_layernorm = RmsNorm()

        def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
            x = x + self.self_attn(self.input_layernorm(x), cos, sin)
            out: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
            return out

    class LlamaBody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(s.vocab_size, s.n_embd)
            self.layers = nn.ModuleList(LlamaBlock() for _ in range(s.n_layer))
            self.norm = RmsNorm()
            self.rotary_emb = Rotary()

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embed_tokens(tokens)
            cos, sin = self.rotary_emb(tokens.shape[1])
            for block in self.layers:
                x = block(x, cos, sin)
            out: torch.Tensor = self.norm(x)
            return out

    class Llama(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LlamaBody()
            self.lm_head = nn.Linear(s.n_embd, s.vocab_size, bias=False)
            if s.tied:
                self.lm_head.weight = self.model.embed_tokens.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.lm_head(self.model(tokens))
            return out

    return Llama()
