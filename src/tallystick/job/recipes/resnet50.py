"""Recipe `resnet50`: residual networks of any depth on images; CIFAR-10, a data file, clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.errors import UsageError
from tallystick.job.recipes.base import Built, Recipe, normal, record_shape, uniform
from tallystick.job.recipes.image_records import (
    COLOURS,
    SOURCES,
    build_classifier,
    check_frozen,
    load_data,
)
from tallystick.job.recipes.settings import (
    NAMES,
    SCHEDULES,
    counts,
    learning_rate,
    make_optimizer,
    setting,
)
from tallystick.numerics.types import DTYPES, TensorType

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class ResnetSettings:
    """Keys of `--set`."""

    blocks: str = setting("3-4-6-3", "residual blocks of each stage")
    bottleneck: bool = setting(True, "blocks of 1x1, 3x3, 1x1 convolutions, or of two 3x3")
    width: int = setting(64, "channels of the first stage; each next has twice", low=1, high=4096)
    stem: str = setting("cifar", "cifar: 3x3, stride 1; imagenet: 7x7, stride 2, max pooling")
    image: int = setting(32, "side of the synthetic images", low=1, high=4096)
    classes: int = setting(10, "classes; 10 for CIFAR-10", low=2, high=1 << 20)
    records: int = setting(512, "records of the synthetic data", low=16, high=1 << 24)
    batch_size: int = setting(32, "records per step", low=2, high=1 << 20)
    micro_batches: int = setting(0, "number of parts of a batch, computed in turn; 0 = off", low=0)
    lr: float = setting(0.02, "peak learning rate", low=0)
    optimizer: str = setting("sgd", f"{', '.join(NAMES[:-1])}")
    momentum: float = setting(0.9, "used by SGD and RMSprop", low=0, high=1)
    weight_decay: float = setting(5e-4, "applied to convolutions and the last matrix", low=0)
    bn_momentum: float = setting(0.1, "momentum of the running statistics", low=0, high=1)
    clip_norm: float = setting(0.0, "largest global gradient norm; 0 = off", low=0)
    clip_value: float = setting(0.0, "largest element of a gradient; 0 = off", low=0)
    ema: float = setting(0.0, "decay of averaged parameters; 0 = no average", low=0, high=1)
    warmup: int = setting(20, "steps of linear warm-up", low=0)
    schedule: str = setting("cosine", "constant or cosine (to a tenth of lr)")
    validation: float = setting(0.1, "share of the records held out", low=0, high=0.9)

    def __post_init__(self) -> None:
        kinds = NAMES[:-1]  # the only matrix is the last one, so there is nothing for Muon
        for name, known in (
            ("schedule", SCHEDULES),
            ("stem", ("cifar", "imagenet")),
            ("optimizer", kinds),
        ):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"resnet50: {name} must be one of {', '.join(known)}.", f"Change --set {name}."
                )
        self.depths()

    def depths(self) -> tuple[int, ...]:
        """Blocks per stage. Raises UsageError."""
        return counts("resnet50", "blocks", self.blocks, 6)

    @property
    def features(self) -> int:
        """Numbers in a synthetic image."""
        return COLOURS * self.image * self.image


PRESETS = {
    "50": {},
    "18": {"blocks": "2-2-2-2", "bottleneck": "false"},
    "tiny": {
        "blocks": "1-1",
        "width": "8",
        "image": "8",
        "classes": "4",
        "records": "128",
        "batch_size": "8",
    },
}


def make_module(s: ResnetSettings) -> nn.Module:
    """ResNet with batch normalisation after every convolution (He et al. 2015, stride in the 3x3).

    Its input is f32[n, 3, h, w]. torch's own initial weights stay in the module; the job gets
    those of `initial_state`.
    """
    from torch import nn
    from torch.nn import functional as F

    def conv(inside: int, out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
        return nn.Conv2d(inside, out, kernel, stride, kernel // 2, bias=False)

    def norm(channels: int) -> nn.BatchNorm2d:
        return nn.BatchNorm2d(channels, momentum=s.bn_momentum)

    class ResnetBlock(nn.Module):
        def __init__(self, inside: int, width: int, out: int, stride: int) -> None:
            super().__init__()
            shapes = [(inside, width, 3, stride), (width, out, 3, 1)]
            if s.bottleneck:
                shapes = [(inside, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
            self.convs = nn.ModuleList(conv(*shape) for shape in shapes)
            self.norms = nn.ModuleList(norm(shape[1]) for shape in shapes)
            self.shortcut = nn.Sequential()
            if stride != 1 or inside != out:
                self.shortcut = nn.Sequential(conv(inside, out, 1, stride), norm(out))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x
            for place, (convolve, normalise) in enumerate(zip(self.convs, self.norms, strict=True)):
                y = normalise(convolve(F.relu(y) if place else y))
            return F.relu(y + self.shortcut(x))

    class Resnet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            large = s.stem == "imagenet"
            self.stem = conv(COLOURS, s.width, 7, 2) if large else conv(COLOURS, s.width, 3)
            self.norm = norm(s.width)
            self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
            stages, inside = [], s.width
            for stage, depth in enumerate(s.depths()):
                width = s.width << stage
                out = 4 * width if s.bottleneck else width
                for place in range(depth):
                    stride = 2 if stage and place == 0 else 1
                    stages.append(ResnetBlock(inside, width, out, stride))
                    inside = out
            self.blocks = nn.Sequential(*stages)
            self.head = nn.Linear(inside, s.classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.blocks(self.pool(F.relu(self.norm(self.stem(x)))))
            out: torch.Tensor = self.head(x.mean((2, 3)))
            return out

    return Resnet()


def initial_state(types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """Parameters and buffers, a function of slot names, shapes and `seed` alone.

    Convolutions: normal, sqrt(2 / fan out). Normalisation: weight 1, bias 0, running mean 0,
    running variance 1, batch count 0. The last layer: nn.Linear's own distribution, U(-1/sqrt(n),
    1/sqrt(n)). The draw id is the slot's place in name order.
    """
    state: dict[str, Array] = {}
    for index, name in enumerate(sorted(types)):
        shape = types[name].shape
        if len(shape) == 4:
            state[name] = normal(
                seed, index, shape, math.sqrt(2 / (shape[0] * math.prod(shape[2:])))
            )
        elif name.startswith("param.head."):
            state[name] = uniform(
                seed, index, shape, 1 / math.sqrt(types["param.head.weight"].shape[1])
            )
        else:
            value = 1 if name.endswith((".weight", ".running_var")) else 0
            state[name] = np.full(shape, value, DTYPES[types[name].dtype])
    return state


def build(s: ResnetSettings, fields: Mapping[str, TensorType], steps: int, seed: int) -> Built:
    """Capture the training step, the validation loss and the forward pass. Needs torch."""
    import torch

    with torch.device("meta"):
        module = make_module(s)
    optimizer = make_optimizer(
        s.optimizer,
        lambda name, shape: False,
        momentum=s.momentum,
        weight_decay=s.weight_decay,
        decay_min_ndim=2,
    )
    rates = {"lr": learning_rate(steps, s.lr, s.warmup, s.schedule)}
    image = record_shape(fields, "x", 3)
    return build_classifier(module, initial_state, optimizer, rates, s, image, seed)


RECIPE = Recipe(
    "resnet50",
    "a residual network of any depth on images",
    ResnetSettings,
    SOURCES,
    load_data,
    build,
    PRESETS,
    check_frozen,
)
