"""Augmentation for a captured step: crop, flip, normalise, mixup, cutout. Needs PyTorch.

Call these functions in the loss or in forward, on batches. They are plain torch operations: their
random calls draw from the job's generator in a capture (PROGRAM 5.3), in `tallystick.reproducible`
too, and from torch's own elsewhere. What they make is part of the step's program (ADR 0017), so a
lie about it is disputed as any other. Each draw is new at every step, and for each record where the
function says so.

An evaluation must not be augmented: use `if module.training:` around the calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.errors import UsageError

# The least distance of a drawn weight from 0 and 1, so that its logarithms are finite.
_LEAST = 2.0**-24


def _images(x: Tensor, name: str) -> tuple[int, int, int, int]:
    if x.dim() != 4:
        raise UsageError(
            f"{name} takes images (batch, channels, height, width), not {tuple(x.shape)}.",
            "Reshape the batch.",
        )
    n, c, h, w = x.shape
    return n, c, h, w


def normalize(x: Tensor, mean: Sequence[float] | float, std: Sequence[float] | float) -> Tensor:
    """(x - mean) / std for each channel: (batch, channels, ...) of u8 or f32 -> f32.

    Numbers of u8 are divided by 255 first, as torchvision's `to_tensor` does. Source: the usual
    preprocessing of image classification (He et al. 2015). Raises UsageError.
    """
    if x.dtype == torch.uint8:
        x = x.float() / 255.0
    if x.dim() < 2:
        raise UsageError("normalize takes (batch, channels, ...).", "Reshape the batch.")
    shape = [1, -1] + [1] * (x.dim() - 2)
    sides = []
    for what, given in (("mean", mean), ("std", std)):
        values = [float(given)] if isinstance(given, (int, float)) else [float(v) for v in given]
        if len(values) not in (1, x.shape[1]) or (what == "std" and min(values) <= 0):
            raise UsageError(
                f"normalize has {len(values)} values of {what} for {x.shape[1]} channels.",
                "Give one number, or one for each channel; std above 0.",
            )
        sides.append(torch.tensor(values, dtype=torch.float32).view(shape))
    return (x - sides[0]) / sides[1]


def random_crop(x: Tensor, padding: int | tuple[int, int]) -> Tensor:
    """Each image shifted by its own whole number of pixels; its size stays.

    `x` is (batch, channels, height, width) of f32. Each is padded with zeros by `padding` on every
    side (or by (vertical, horizontal)), and a window of the old size is taken out of it: each of
    the (2p + 1)² places is equally likely. Source: torchvision's RandomCrop(size, padding).
    Raises UsageError.
    """
    n, c, h, w = _images(x, "random_crop")
    vertical, horizontal = (padding, padding) if isinstance(padding, int) else padding
    if vertical < 0 or horizontal < 0:
        raise UsageError(f"random_crop has the padding {padding}.", "Give at least 0.")
    top = torch.randint(0, 2 * vertical + 1, (n, 1))
    left = torch.randint(0, 2 * horizontal + 1, (n, 1))
    rows = (top + torch.arange(h)).view(n, 1, h, 1)
    columns = (left + torch.arange(w)).view(n, 1, 1, w)
    padded = F.pad(x, (horizontal, horizontal, vertical, vertical))
    taken = padded.gather(2, rows.expand(n, c, h, w + 2 * horizontal))
    return taken.gather(3, columns.expand(n, c, h, w))


def horizontal_flip(x: Tensor, p: float = 0.5) -> Tensor:
    """Each image (batch, channels, height, width) mirrored left to right with the probability `p`.

    Source: torchvision's RandomHorizontalFlip. Raises UsageError.
    """
    n, _, _, _ = _images(x, "horizontal_flip")
    if not 0 <= p <= 1:
        raise UsageError(f"horizontal_flip has the probability {p}.", "Give 0 to 1.")
    flipped = (torch.rand(n) < p).view(n, 1, 1, 1)
    return torch.where(flipped, x.flip(3), x)


def cutout(x: Tensor, size: int) -> Tensor:
    """A square of `size` pixels of each image (batch, channels, height, width) set to 0.

    The square's middle is any pixel with equal probability, so a part of it may lie outside.
    Source: DeVries and Taylor 2017, arXiv:1708.04552. Raises UsageError.
    """
    n, _, h, w = _images(x, "cutout")
    if size < 1:
        raise UsageError(f"cutout has the size {size}.", "Give at least 1.")
    y = torch.arange(h).view(1, h, 1) - torch.randint(0, h, (n, 1, 1)) + size // 2
    z = torch.arange(w).view(1, 1, w) - torch.randint(0, w, (n, 1, 1)) + size // 2
    inside = ((y >= 0) & (y < size)) & ((z >= 0) & (z < size))
    return torch.where(inside.view(n, 1, h, w), torch.zeros_like(x), x)


def beta(alpha: float) -> Tensor:
    """One number of the distribution Beta(alpha, alpha), f32[], by four uniform numbers.

    W of Beta(alpha + 1, alpha + 1) comes from two of them by Ulrich's method for symmetric beta
    variables (Devroye 1986, IX.3.2): W = (1 + sqrt(1 - U^(2/(2a - 1))) cos 2πV) / 2, a = alpha + 1.
    A gamma variable of alpha is one of alpha + 1 times U^(1/alpha), so the other two make
    Beta(alpha, alpha) of it: 1 / (1 + (1 - W)/W (U2/U1)^(1/alpha)), computed by logarithms.
    """
    if not 0 < alpha < 2.0**20:
        raise UsageError(f"beta has alpha={alpha}.", "Give a number above 0, at most 2^20.")
    u = 1.0 - torch.rand(4)  # in (0, 1]: its logarithm is finite
    radius = (1.0 - (u[0].log() * (2.0 / (2.0 * alpha + 1.0))).exp()).clamp_min(0.0).sqrt()
    middle = 0.5 + 0.5 * radius * torch.cos(u[1] * (2.0 * torch.pi))
    middle = middle.clamp(_LEAST, 1.0 - _LEAST)
    odds = middle.log() - (1.0 - middle).log() + (u[2].log() - u[3].log()) / alpha
    return torch.sigmoid(odds)


def mixup(x: Tensor, y: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each record mixed with the next one of its batch: (x mixed, y, y of the other, weight).

    `x` is (batch, ...) of f32, `y` (batch, ...); the weight is f32[] of Beta(alpha, alpha), one for
    the batch. The mixed x is weight·x + (1 - weight)·(the next record's x); the last one's next is
    the first. A batch is in the job's own random order, so the next record is any other one. The
    loss is weight·loss(y) + (1 - weight)·loss(y of the other). Source: Zhang et al. 2018,
    arXiv:1710.09412. Raises UsageError.
    """
    if not x.dtype.is_floating_point or len(x) != len(y):
        raise UsageError(
            f"mixup has x of {x.dtype} and {len(x)} records, y of {len(y)}.",
            "Normalise x first; give x and y of one batch.",
        )
    weight = beta(alpha)
    other = x.roll(-1, 0)
    return weight * x + (1.0 - weight) * other, y, y.roll(-1, 0), weight
