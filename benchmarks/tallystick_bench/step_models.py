"""The models of `bench step`, and where a user's own comes from.

Each is a function that gives a `Net`: plain torch, written as people write it. To measure another
model, name a file and a function of it: `--model FILE.py:FUNCTION`.
"""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tallystick.errors import UsageError
from tallystick.job.recipes import resnet50
from tallystick.job.recipes.settings import build
from tallystick.program.optimizers import SGD, AdamW, Optimizer
from tallystick_bench.step_blocks import Distil, Llama, Unet, vgg11

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Net:
    """A model with its loss, one batch and its optimizer.

    `loss(module, batch)` is a float32 scalar. Every tensor of `batch` has the records along its
    first axis. `target` is the largest ratio of times that passes; None where none is stated.
    """

    module: nn.Module
    loss: Callable[[nn.Module, Mapping[str, Tensor]], Tensor]
    batch: Batch
    optimizer: Optimizer
    target: float | None = None


def _classes(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(batch["x"]), batch["y"])


def _words(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    logits = module(batch["tokens"][:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch["tokens"][:, 1:].flatten())


def _images(records: int, classes: int) -> Batch:
    return {"x": torch.randn(records, 3, 32, 32), "y": torch.randint(classes, (records,))}


_STEP = SGD(0.01, momentum=0.9)
_ADAM = AdamW(3e-4)


def logistic_regression() -> Net:
    """784 numbers to 10 classes, batch 64, plain SGD."""
    batch = {"x": torch.randn(64, 784), "y": torch.randint(10, (64,))}
    return Net(nn.Linear(784, 10), _classes, batch, SGD(0.1), 1.0)


def distilbert() -> Net:
    """DistilBERT's sizes (66M), two labels, batch 8 of 64 tokens."""
    batch = {"x": torch.randint(30522, (8, 64)), "y": torch.randint(2, (8,))}
    return Net(Distil(30522, 768, 12, 6), _classes, batch, _ADAM, 0.9)


def llama_100m() -> Net:
    """RMS norms, rotary positions, grouped queries, gated SiLU; 100M, batch 8 of 64 tokens."""
    batch = {"tokens": torch.randint(32000, (8, 65))}
    return Net(Llama(32000, 768, 12, 4, 12, 2048), _words, batch, _ADAM, 0.9)


def vgg_11() -> Net:
    """VGG-11 with batch norm for 32x32 images, batch 16."""
    return Net(vgg11(10), _classes, _images(16, 10), _STEP, 1.0)


def _resnet(preset: str) -> Net:
    settings = build(resnet50.ResnetSettings, resnet50.PRESETS[preset], "resnet50")
    return Net(resnet50.make_module(settings), _classes, _images(16, 10), _STEP, 1.0)


def resnet_18() -> Net:
    """ResNet-18, CIFAR stem, batch 16."""
    return _resnet("18")


def resnet_50() -> Net:
    """ResNet-50, CIFAR stem, batch 16."""
    return _resnet("50")


def _unet(grouped: bool) -> Net:
    batch = {"x": torch.randn(4, 3, 64, 64), "y": torch.randint(2, (4, 64, 64))}
    return Net(Unet(32, 2, grouped), _classes, batch, _ADAM, 1.1)


def unet() -> Net:
    """A U-Net that labels pixels: batch norm, ReLU, transposed convolutions; batch 4 of 64x64."""
    return _unet(grouped=False)


def unet_group_norm() -> Net:
    """The same with group norm and SiLU, as diffusion has it."""
    return _unet(grouped=True)


NETS: dict[str, Callable[[], Net]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        logistic_regression,
        distilbert,
        llama_100m,
        vgg_11,
        resnet_18,
        resnet_50,
        unet,
        unet_group_norm,
    )
}


def net(name: str) -> Net:
    """The model called `name`, or that of FILE.py:FUNCTION, with weights and batch of one seed.

    Raises UsageError where there is none of that name, or the function gives no `Net`.
    """
    path, colon, function = name.rpartition(":")
    made = NETS.get(name)
    if colon and made is None:
        if not Path(path).is_file():
            raise UsageError(f"There is no file {path}.", "Give --model FILE.py:FUNCTION.")
        made = runpy.run_path(path).get(function)
        if made is None:
            raise UsageError(f"{path} defines no {function!r}.", "Name a function of the file.")
    if made is None:
        raise UsageError(
            f"There is no model {name!r}.",
            f"Choose from {', '.join(NETS)}, or give FILE.py:FUNCTION.",
        )
    torch.manual_seed(1)
    found = made()
    if not isinstance(found, Net):
        raise UsageError(
            f"{name} gives {type(found).__name__}.",
            "Return a tallystick_bench.step_models.Net: module, loss, batch, optimizer.",
        )
    sizes = {len(t) if t.ndim else 0 for t in found.batch.values()}
    if len(sizes) != 1 or not math.prod(sizes):
        raise UsageError(f"The batch of {name} has {sorted(sizes)} records.", "Give one number.")
    return found
