"""Networks for images as people write them by hand, classifiers and a U-Net."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tallystick_bench.coverage.case import Batch, Case, floats, integers

_CLASSES = 4


def _conv(a: int, b: int, k: int = 3, s: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(a, b, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)
    )


class _Basic(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = _conv(a, b, 3, stride), nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(b)
        self.short = None if a == b and stride == 1 else nn.Conv2d(a, b, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.two(self.one(x)))
        return F.relu(y + (x if self.short is None else self.short(x)))


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, _CLASSES)]


def _resnet() -> nn.Module:
    body = [_conv(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1), _Basic(8, 8, 1), _Basic(8, 16, 2)]
    return nn.Sequential(*body, *_head(16))


def _alexnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, 2, 2), nn.ReLU(True), nn.MaxPool2d(3, 2), nn.Conv2d(8, 8, 3, 1, 1),
        nn.ReLU(True), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 16), nn.ReLU(True),
        nn.Linear(16, _CLASSES),
    )  # fmt: skip


def _vgg() -> nn.Module:
    body = [_conv(3, 8), nn.MaxPool2d(2, 2), _conv(8, 16), _conv(16, 16), nn.MaxPool2d(2, 2)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, _CLASSES))


class _Inverted(nn.Module):
    def __init__(self, a: int, b: int, stride: int, grow: int = 2, squeeze: bool = False) -> None:
        super().__init__()
        wide = a * grow
        self.body = nn.Sequential(
            nn.Conv2d(a, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.Hardswish(),
        )  # fmt: skip
        self.gate = (
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 4, 1), nn.ReLU(),
                          nn.Conv2d(4, wide, 1), nn.Hardsigmoid())
            if squeeze else None
        )  # fmt: skip
        self.out = nn.Sequential(nn.Conv2d(wide, b, 1, bias=False), nn.BatchNorm2d(b))
        self.skip = a == b and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        if self.gate is not None:
            y = y * self.gate(y)
        y = self.out(y)
        return x + y if self.skip else y


def _mobilenet() -> nn.Module:
    return nn.Sequential(_conv(3, 8, 3, 2), _Inverted(8, 8, 1), _Inverted(8, 16, 2), nn.ReLU6(),
                         *_head(16))  # fmt: skip


def _efficientnet() -> nn.Module:
    return nn.Sequential(_conv(3, 8, 3, 2), _Inverted(8, 8, 1, 3, True),
                         _Inverted(8, 16, 2, 3, True), *_head(16))  # fmt: skip


class _Dense(nn.Module):
    def __init__(self, width: int, grow: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(width + i * grow), nn.ReLU(),
                          nn.Conv2d(width + i * grow, grow, 3, 1, 1, bias=False))
            for i in range(layers)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


def _densenet() -> nn.Module:
    return nn.Sequential(_conv(3, 8), _Dense(8, 4, 3), nn.Conv2d(20, 8, 1), nn.AvgPool2d(2),
                         _Dense(8, 4, 2), *_head(16))  # fmt: skip


class _Fire(nn.Module):
    def __init__(self, a: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(a, narrow, 1)
        self.one, self.three = nn.Conv2d(narrow, wide, 1), nn.Conv2d(narrow, wide, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.narrow(x))
        return torch.cat([F.relu(self.one(y)), F.relu(self.three(y))], 1)


class _Shuffle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.right = _conv(3, 8, 3, 2), _conv(4, 4)
        self.head = nn.Linear(8, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.stem(x).chunk(2, 1)
        y = torch.cat([left, self.right(right)], 1)
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        found: Tensor = self.head(y.mean([2, 3]))
        return found


class _ConvNeXt(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.spread(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class _UNet(nn.Module):
    def __init__(self, transposed: bool) -> None:
        super().__init__()
        self.one, self.two, self.three = _conv(3, 8), _conv(8, 16), _conv(24 if not transposed
                                                                         else 16, 8)  # fmt: skip
        self.up: nn.Module = (
            nn.ConvTranspose2d(16, 8, 2, 2) if transposed
            else nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        )  # fmt: skip
        self.out = nn.Conv2d(8, _CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.one(x)
        b = self.two(F.max_pool2d(a, 2))
        found: Tensor = self.out(self.three(torch.cat([self.up(b), a], 1)))
        return found


class _Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 4, 4)
        self.norm = nn.LayerNorm(12)
        self.tokens, self.channels = nn.Linear(16, 16), nn.Linear(12, 12)
        self.head = nn.Linear(12, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        y = y + torch.einsum("bnc,nm->bmc", self.norm(y), self.tokens.weight)
        y = y + F.gelu(self.channels(y))
        found: Tensor = self.head(y.mean(1))
        return found


def _classified(module: nn.Module, b: Batch) -> Tensor:
    return F.cross_entropy(module(b["x"]), b["y"])


def _images(g: torch.Generator) -> Batch:
    return {"x": floats(g, 4, 3, 16, 16), "y": integers(g, _CLASSES, 4)}


def _pixels(g: torch.Generator) -> Batch:
    return {"x": floats(g, 4, 3, 16, 16), "y": integers(g, _CLASSES, 4, 16, 16)}


def _dice(module: nn.Module, b: Batch) -> Tensor:
    p = module(b["x"]).softmax(1)
    y = F.one_hot(b["y"], _CLASSES).permute(0, 3, 1, 2).to(p.dtype)
    overlap = (p * y).sum((2, 3))
    return (1 - (2 * overlap + 1) / (p.sum((2, 3)) + y.sum((2, 3)) + 1)).mean()


def _focal(module: nn.Module, b: Batch) -> Tensor:
    p = F.cross_entropy(module(b["x"]), b["y"], reduction="none")
    return ((1 - torch.exp(-p)) ** 2 * p).mean()


def cases() -> Iterator[Case]:
    """Classification and segmentation of images."""
    for name, build in {
        "resnet": _resnet,
        "alexnet": _alexnet,
        "vgg": _vgg,
        "mobilenet": _mobilenet,
        "efficientnet": _efficientnet,
        "densenet": _densenet,
        "squeezenet": lambda: nn.Sequential(_conv(3, 8, 3, 2), _Fire(8, 4, 8), *_head(16)),
        "shufflenet": _Shuffle,
        "convnext": lambda: nn.Sequential(nn.Conv2d(3, 8, 2, 2), _ConvNeXt(8), *_head(8)),
        "mlp-mixer": _Mixer,
    }.items():
        yield Case("image net", name, build, _classified, _images)
    for how, loss in {"cross entropy": _classified, "dice": _dice, "focal": _focal}.items():
        yield Case("segmentation", f"u-net transposed, {how}", lambda: _UNet(True), loss, _pixels)
    yield Case("segmentation", "u-net bilinear", lambda: _UNet(False), _classified, _pixels)
