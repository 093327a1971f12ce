"""Recipe `vgg11`: VGG networks on images; CIFAR-10, a data file, synthetic images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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
from tallystick.job.recipes.settings import CHOICES, StepSettings, counts, setting
from tallystick.numerics.types import DTYPES, TensorType

if TYPE_CHECKING:
    import torch
    from torch import nn

# No stage is wider than this many times the first one.
_WIDEST = 8


@dataclass(frozen=True)
class VggSettings(StepSettings):
    """Keys of `--set`."""

    recipe: ClassVar[str] = "vgg11"

    convolutions: str = setting("1-1-2-2-2", "3x3 convolutions before each pooling")
    batch_norm: bool = setting(False, "batch normalisation after each convolution")
    width: int = setting(64, "channels of the first stage; each next has twice", low=1, high=4096)
    pool: int = setting(1, "side of the images that reach the classifier", low=1, high=64)
    hidden: int = setting(512, "width of the classifier's two hidden layers", low=1, high=1 << 16)
    dropout: float = setting(0.5, "dropout probability after each hidden layer", low=0)
    image: int = setting(32, "side of the synthetic images", low=1, high=4096)
    classes: int = setting(10, "classes; 10 for CIFAR-10", low=2, high=1 << 20)
    records: int = setting(512, "records of the synthetic data", low=16, high=1 << 24)
    lr: float = setting(0.01, "peak learning rate", low=0)
    optimizer: str = setting("sgd", CHOICES)
    weight_decay: float = setting(5e-4, "applied to matrices and convolutions only", low=0)
    clip_norm: float = setting(0.0, "largest global gradient norm; 0 = off", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.below_one("dropout")
        self.depths()

    def depths(self) -> tuple[int, ...]:
        """Convolutions per stage. Raises UsageError."""
        return counts(self.recipe, "convolutions", self.convolutions, 8)

    @property
    def features(self) -> int:
        """Numbers in a synthetic image."""
        return COLOURS * self.image * self.image


PRESETS = {
    "11": {},
    "13": {"convolutions": "2-2-2-2-2"},
    "16": {"convolutions": "2-2-3-3-3"},
    "19": {"convolutions": "2-2-4-4-4"},
    "imagenet": {"image": "224", "classes": "1000", "pool": "7", "hidden": "4096"},
    "tiny": {
        "convolutions": "1-2",
        "width": "8",
        "hidden": "16",
        "image": "8",
        "pool": "2",
        "classes": "4",
        "records": "128",
        "batch_size": "8",
    },
}


def make_module(s: VggSettings) -> nn.Module:
    """VGG (Simonyan and Zisserman 2014, configuration A by default): stages of 3x3 convolutions,
    each with 2x2 max pooling behind it, then two hidden layers with dropout.

    Its input is f32[n, 3, h, w]. Parameter names are torchvision's. torch's own initial weights
    stay in the module; the job gets those of `initial_state`.
    """
    from torch import nn

    features: list[nn.Module] = []
    inside = COLOURS
    for stage, depth in enumerate(s.depths()):
        width = s.width * min(1 << stage, _WIDEST)
        for _ in range(depth):
            features.append(nn.Conv2d(inside, width, 3, padding=1))
            if s.batch_norm:
                features.append(nn.BatchNorm2d(width))
            features.append(nn.ReLU())
            inside = width
        features.append(nn.MaxPool2d(2, 2))

    class Vgg(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(*features)
            self.avgpool = nn.AdaptiveAvgPool2d((s.pool, s.pool))
            self.classifier = nn.Sequential(
                nn.Linear(inside * s.pool * s.pool, s.hidden),
                nn.ReLU(),
                nn.Dropout(s.dropout),
                nn.Linear(s.hidden, s.hidden),
                nn.ReLU(),
                nn.Dropout(s.dropout),
                nn.Linear(s.hidden, s.classes),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.features(x)
            # Nothing is pooled where the side is right: the operator's mean of one is left out.
            if tuple(x.shape[2:]) != (s.pool, s.pool):
                x = self.avgpool(x)
            out: torch.Tensor = self.classifier(x.flatten(1))
            return out

    return Vgg()


LAST = "param.classifier.6."


def initial_state(types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """Parameters and buffers, a function of slot names, shapes and `seed` alone.

    Convolutions and hidden layers: normal, sqrt(2 / fan in) (He et al. 2015); their biases 0.
    Normalisation: weight 1, bias 0, running mean 0, running variance 1, batch count 0. The last
    layer: nn.Linear's own distribution, U(-1/sqrt(n), 1/sqrt(n)). The draw id is the slot's place
    in name order.
    """
    state: dict[str, Array] = {}
    for index, name in enumerate(sorted(types)):
        shape = types[name].shape
        if name.startswith(LAST):
            state[name] = uniform(
                seed, index, shape, 1 / math.sqrt(types[f"{LAST}weight"].shape[1])
            )
        elif len(shape) >= 2:
            state[name] = normal(seed, index, shape, math.sqrt(2 / math.prod(shape[1:])))
        else:
            value = 1 if name.endswith((".weight", ".running_var")) else 0
            state[name] = np.full(shape, value, DTYPES[types[name].dtype])
    return state


def build(s: VggSettings, fields: Mapping[str, TensorType], steps: int, seed: int) -> Built:
    """Capture the training step, the validation loss and the forward pass. Needs torch."""
    import torch

    image = record_shape(fields, "x", 3)
    if min(image[1:]) >> len(s.depths()) < 1:
        raise UsageError(
            f"vgg11: {len(s.depths())} poolings reduce images of {image[1]}x{image[2]} to nothing.",
            "Use fewer stages, such as --set convolutions=1-1.",
        )
    with torch.device("meta"):
        module = make_module(s)
    optimizer = s.rule(lambda name, shape: len(shape) == 2 and not name.startswith(LAST[6:]))
    return build_classifier(module, initial_state, optimizer, s.rates(steps), s, image, seed)


RECIPE = Recipe(
    "vgg11",
    "a VGG network of any depth on images",
    VggSettings,
    SOURCES,
    load_data,
    build,
    PRESETS,
    check_frozen,
)
