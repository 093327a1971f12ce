"""The larger networks of `bench step`, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class _Attention(nn.Module):
    """Attention of `heads` query heads over `shared` key heads; rotary positions where given."""

    def __init__(self, width: int, heads: int, shared: int, causal: bool, bias: bool) -> None:
        super().__init__()
        self.heads, self.shared, self.causal = heads, shared, causal
        self.size = width // heads
        self.q = nn.Linear(width, width, bias=bias)
        self.k = nn.Linear(width, shared * self.size, bias=bias)
        self.v = nn.Linear(width, shared * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor] | None = None) -> Tensor:
        q = self._split(self.q(x), self.heads)
        k, v = self._split(self.k(x), self.shared), self._split(self.v(x), self.shared)
        if rotary is not None:
            q, k = _rotated(q, *rotary), _rotated(k, *rotary)
        if self.shared != self.heads:
            times = self.heads // self.shared
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        found: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return found


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class _DistilLayer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, heads, causal=False, bias=True)
        self.one, self.two = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x + self.attention(x))
        found: Tensor = self.two(x + self.drop(self.down(F.gelu(self.up(x)))))
        return found


class Distil(nn.Module):
    """DistilBERT with a classifier of two labels: i64[batch, length] to [batch, 2]."""

    def __init__(self, words: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)
        self.layers = nn.ModuleList(_DistilLayer(width, heads, 0.1) for _ in range(layers))
        self.before, self.head = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.norm(self.words(tokens) + self.places(place)))
        for layer in self.layers:
            x = layer(x)
        found: Tensor = self.head(self.drop(F.relu(self.before(x[:, 0]))))
        return found


class _RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class _LlamaLayer(nn.Module):
    def __init__(self, width: int, heads: int, shared: int, inner: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, shared, causal=True, bias=False)
        self.one, self.two = _RmsNorm(width), _RmsNorm(width)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.one(x), rotary)
        y = self.two(x)
        found: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return found


class Llama(nn.Module):
    """Llama with tied embeddings: i64[batch, length] to [batch, length, words]."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self, words: int, width: int, heads: int, shared: int, layers: int, inner: int
    ) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, width), _RmsNorm(width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.layers = nn.ModuleList(_LlamaLayer(width, heads, shared, inner) for _ in range(layers))
        size = width // heads
        rate = 1.0 / 10000 ** (torch.arange(0, size, 2) / size)
        angle = torch.outer(torch.arange(512), rate).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x, rotary = self.embed(tokens), (self.cos[:length], self.sin[:length])
        for layer in self.layers:
            x = layer(x, rotary)
        return F.linear(self.norm(x), self.embed.weight)


def vgg11(classes: int) -> nn.Module:
    """VGG-11 with batch norm for 32x32 images: five pools, one linear layer."""
    body: list[nn.Module] = []
    before = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if width == 0:
            body.append(nn.MaxPool2d(2, 2))
            continue
        body += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(True)]
        before = width
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(512, classes))


class _Twice(nn.Sequential):
    def __init__(self, before: int, width: int, grouped: bool) -> None:
        layers: list[nn.Module] = []
        for inside in (before, width):
            layers += [
                nn.Conv2d(inside, width, 3, padding=1, bias=False),
                nn.GroupNorm(8, width) if grouped else nn.BatchNorm2d(width),
                nn.SiLU() if grouped else nn.ReLU(True),
            ]
        super().__init__(*layers)


class Unet(nn.Module):
    """Four levels down and up, joined by concatenation: [n, 3, h, w] to [n, labels, h, w]."""

    def __init__(self, width: int, labels: int, grouped: bool) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(
            _Twice(a, b, grouped) for a, b in zip([3, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in reversed(widths[:-1]))
        self.join = nn.ModuleList(_Twice(2 * a, a, grouped) for a in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, labels, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, join in zip(self.up, self.join, strict=True):
            kept.pop()
            x = join(torch.cat([kept[-1], up(x)], 1))
        found: Tensor = self.head(x)
        return found
