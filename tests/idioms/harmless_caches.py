"""Harmless: caches that give the same at every call, whether they hit or miss."""

import functools
import math
import weakref
from collections import OrderedDict

import torch
import torch.nn.functional as F
from idioms.case import Idiom, harmless
from torch import nn


def cross_entropy(module, batch):
    return F.cross_entropy(module(batch["x"]), batch["y"])


@harmless("lru-cache-of-a-number")
def _():
    @functools.lru_cache(maxsize=32)
    def scale(width):
        return 1.0 / math.sqrt(width)

    def loss(module, batch):
        return F.cross_entropy(module(batch["x"]) * scale(batch["x"].shape[-1]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("lru-cache-of-class-weights")
def _():
    @functools.lru_cache(maxsize=8)
    def weights(classes):
        return torch.arange(1, classes + 1, dtype=torch.float32) / classes

    def loss(module, batch):
        logits = module(batch["x"])
        return F.cross_entropy(logits * weights(logits.shape[-1]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("memoised-causal-mask")
def _():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 3)
            self.masks = {}

        def mask(self, n):
            if n not in self.masks:
                self.masks[n] = torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1)
            return self.masks[n]

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            scores = (q @ k.transpose(0, 1) / 2.0).masked_fill(self.mask(x.shape[0]), -1e9)
            return self.out(torch.softmax(scores, dim=-1) @ v)

    return Idiom(Attention(), cross_entropy)


@harmless("rotary-table-grows-with-the-longest-sequence")
def _():
    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.cached, self.cos, self.sin = 0, None, None

        def tables(self, n):
            if n > self.cached:
                angle = torch.arange(n).float()[:, None] * torch.tensor([[1.0, 0.01]])
                self.cached, self.cos, self.sin = n, angle.cos(), angle.sin()
            return self.cos[:n], self.sin[:n]

        def forward(self, x):
            cos, sin = self.tables(x.shape[0])
            a, b = x.chunk(2, dim=-1)
            return self.fc(torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1))

    return Idiom(Rotary(), cross_entropy)


@harmless("sinusoid-table-on-the-class")
def _():
    class Positions(nn.Module):
        table = None

        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            if Positions.table is None:
                place = torch.arange(x.shape[0], dtype=torch.float32)[:, None]
                rate = torch.tensor([1.0, 0.1, 0.01, 0.001])
                Positions.table = torch.sin(place * rate)
            return self.fc(x + Positions.table)

    return Idiom(Positions(), cross_entropy)


@harmless("default-argument-cache")
def _():
    def gain(width, cache={}):  # noqa: B006
        if width not in cache:
            cache[width] = sum(1.0 / (i + 1) for i in range(width))
        return cache[width]

    def loss(module, batch):
        return F.cross_entropy(module(batch["x"]) / gain(batch["x"].shape[1]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("weak-key-cache-of-fan-in")
def _():
    fans = weakref.WeakKeyDictionary()

    def fan_in(layer):
        try:
            return fans[layer]
        except KeyError:
            return fans.setdefault(layer, layer.weight.shape[1])

    def loss(module, batch):
        penalty = sum(p.weight.square().sum() / fan_in(p) for p in module if hasattr(p, "weight"))
        return F.cross_entropy(module(batch["x"]), batch["y"]) + 0.01 * penalty

    return Idiom(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), loss)


@harmless("weak-set-of-modules-seen")
def _():
    seen = weakref.WeakSet()

    def loss(module, batch):
        for child in module.modules():
            if child not in seen:
                seen.add(child)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), loss)


@harmless("cached-property-of-a-parameter-count")
def _():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        @functools.cached_property
        def count(self):
            return sum(p.numel() for p in self.parameters())

        def forward(self, x):
            return self.fc(x) / math.sqrt(self.count)

    return Idiom(Net(), cross_entropy)


@harmless("cached-index-by-length")
def _():
    """The off-diagonal of a similarity matrix; its mask is kept by length and dtype."""
    cache = {}

    def off_diagonal(n, dtype):
        key = (n, dtype)
        if key not in cache:
            cache[key] = 1.0 - torch.eye(n, dtype=dtype)
        return cache[key]

    def loss(module, batch):
        logits = module(batch["x"])
        similarity = logits @ logits.transpose(0, 1)
        spread = (similarity * off_diagonal(len(logits), logits.dtype)).square().mean()
        return F.cross_entropy(logits, batch["y"]) + 0.01 * spread

    return Idiom(nn.Linear(4, 3), loss)


@harmless("cache-with-hits-and-misses")
def _():
    class Cache:
        def __init__(self):
            self.hits, self.misses, self.entries = 0, 0, OrderedDict()

        def get(self, key, make):
            if key in self.entries:
                self.hits += 1
                self.entries.move_to_end(key)
            else:
                self.misses += 1
                self.entries[key] = make()
            return self.entries[key]

    cache = Cache()

    def loss(module, batch):
        width = batch["x"].shape[1]
        slope = cache.get(width, lambda: 1.0 / (2 * width))
        return F.cross_entropy(F.leaky_relu(module(batch["x"]), slope), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("alibi-slopes-computed-once")
def _():
    slopes = None

    def bias(n):
        nonlocal slopes
        if slopes is None:
            slopes = [2.0 ** -(i + 1) for i in range(3)]
        return torch.tensor(slopes) * n

    def loss(module, batch):
        return F.cross_entropy(module(batch["x"]) + bias(batch["x"].shape[0]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("cache-evicted-and-made-again")
def _():
    """A cache of one entry, cleared every few calls: what is made again is the same."""
    cache, uses = {}, [0]

    def table(width):
        uses[0] += 1
        if uses[0] % 7 == 0:
            cache.clear()
        if width not in cache:
            cache[width] = tuple(math.cos(i) for i in range(width))
        return cache[width]

    def loss(module, batch):
        x = batch["x"] * torch.tensor(table(batch["x"].shape[1]))
        return F.cross_entropy(module(x), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)
