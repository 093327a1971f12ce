"""Compositions for resampling: interpolation along axes and at points of a grid (NUMERICS 9, 4.3).

An interpolated element is the sum of taps times weights, in ascending order of the tap. Positions
and weights are computed in binary32, as torch's kernels do for binary32 tensors. The gradient adds
tap by tap; what one tap contributes to an element is added in ascending order of the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallystick.program.capture.decompose import composition
from tallystick.program.capture.positions import runs

# A composition is traced on this device, and torch's default device is not asked.
_META = torch.device("meta")
# Keys' cubic convolution, with torch's constant.
_CUBIC = -0.75


def cubic_weights(t: Tensor) -> list[Tensor]:
    """Weights of the taps at −1, 0, 1, 2 from the cell's start; t in [0, 1] is the place in it."""

    def near(x: Tensor) -> Tensor:
        return ((_CUBIC + 2.0) * x - (_CUBIC + 3.0)) * x * x + 1.0

    def far(x: Tensor) -> Tensor:
        return ((_CUBIC * x - 5.0 * _CUBIC) * x + 8.0 * _CUBIC) * x - 4.0 * _CUBIC

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


# -- along axes -------------------------------------------------------------------------------

_Taps = list[tuple[Tensor, Tensor | None]]


def _step(size: int, outputs: int, align: bool, scale: float | None) -> float:
    """Input places per output place, a binary32 number."""
    if align:
        step = np.float32(size - 1) / np.float32(outputs - 1) if outputs > 1 else np.float32(0)
    elif scale is not None and scale > 0:
        step = np.float32(1.0 / scale)
    else:
        step = np.float32(size) / np.float32(outputs)
    return float(step)


def _sources(size: int, outputs: int, align: bool, scale: float | None) -> Tensor:
    step = _step(size, outputs, align, scale)
    at = torch.arange(outputs, dtype=torch.float32, device=_META)
    return at * step if align else (at + 0.5) * step - 0.5


def _nearest_taps(size: int, outputs: int, scale: float | None, exact: bool) -> _Taps:
    step = np.float32(_step(size, outputs, False, scale))
    # By torch's kernels: the half is added in binary64, the product of the others rounded once.
    at = np.arange(outputs) + 0.5 if exact else np.arange(outputs, dtype=np.float32)
    found = np.minimum(np.floor((at * step).astype(np.float32)).astype(int), size - 1)
    if not exact and outputs in (size, 2 * size):
        found = np.arange(outputs) // (outputs // size)
    return [(_listed(found.tolist()), None)]


def _listed(places: list[int]) -> Tensor:
    parts = [
        torch.arange(first, first + count * step, step, device=_META)
        if step
        else torch.full((count,), first, device=_META)
        for first, count, step in runs(places)
    ]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _linear_taps(size: int, outputs: int, align: bool, scale: float | None) -> _Taps:
    at = _sources(size, outputs, align, scale).clamp(0.0, float(size - 1))
    low = at.to(torch.int64)
    part = at - low.to(torch.float32)
    return [(low, 1.0 - part), ((low + 1).clamp(max=size - 1), part)]


def _cubic_taps(size: int, outputs: int, align: bool, scale: float | None) -> _Taps:
    at = _sources(size, outputs, align, scale)
    low = (at + 1.0).to(torch.int64) - 1  # ⌊at⌋, which is −1 at least
    weights = cubic_weights(at - low.to(torch.float32))
    return [((low + k - 1).clamp(0, size - 1), w) for k, w in enumerate(weights)]


def _taps(mode: str, size: int, outputs: int, align: bool, scale: float | None) -> _Taps:
    if mode == "linear":
        return _linear_taps(size, outputs, align, scale)
    if mode == "cubic":
        return _cubic_taps(size, outputs, align, scale)
    return _nearest_taps(size, outputs, scale, mode == "exact")


def _weighted(x: Tensor, dim: int, weight: Tensor | None) -> Tensor:
    return x if weight is None else x * weight.view(-1, *(1 for _ in x.shape[dim + 1 :]))


def _resampled(x: Tensor, dim: int, taps: _Taps) -> Tensor:
    parts = [_weighted(x.index_select(dim, place), dim, weight) for place, weight in taps]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _resampled_backward(grad: Tensor, dim: int, size: int, taps: _Taps) -> Tensor:
    last = dim == grad.dim() - 1
    if last:  # index_add moves what stands behind the axis at once
        grad = grad.transpose(dim, dim - 1)
        dim -= 1
    total = grad.new_zeros((*grad.shape[:dim], size, *grad.shape[dim + 1 :]))
    for place, weight in taps:
        total = total.index_add(dim, place, _weighted(grad, dim, weight))
    return total.transpose(dim, dim + 1) if last else total


def _repeated(size: int, outputs: int, scale: float | None, exact: bool) -> int | None:
    """How often every place is repeated, if all equally often."""
    times, rest = divmod(outputs, size)
    if rest or not times:
        return None
    step = _step(size, outputs, False, scale)
    at = np.arange(outputs) + (0.5 if exact else 0.0)
    found = np.minimum(np.floor((at * step).astype(np.float32)).astype(int), size - 1)
    return times if (found == np.arange(outputs) // times).all() else None


def _spatial(mode: str, args: tuple[Any, ...], count: int) -> tuple[bool, list[float | None]]:
    """align_corners and one scale per axis of the operator's last arguments."""
    given = list(args)
    align = bool(given.pop(0)) if mode in ("linear", "cubic") else False
    return align, (given + [None] * count)[:count]


def _upsample(mode: str, count: int) -> Any:
    def call(x: Tensor, output_size: Sequence[int], *args: Any) -> Tensor:
        align, scales = _spatial(mode, args, count)
        for axis, outputs in enumerate(output_size):
            dim, size = 2 + axis, x.shape[2 + axis]
            times = None
            if mode in ("nearest", "exact"):
                times = _repeated(size, outputs, scales[axis], mode == "exact")
            if times:
                x = x.unsqueeze(dim + 1).repeat_interleave(times, dim + 1).flatten(dim, dim + 1)
            elif size != outputs or mode == "cubic" or scales[axis] is not None:
                x = _resampled(x, dim, _taps(mode, size, outputs, align, scales[axis]))
        return x

    return call


def _upsample_backward(mode: str, count: int) -> Any:
    def call(
        grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], *args: Any
    ) -> Tensor:
        align, scales = _spatial(mode, args, count)
        for axis, outputs in reversed(list(enumerate(output_size))):
            dim, size = 2 + axis, input_size[2 + axis]
            times = None
            if mode in ("nearest", "exact"):
                times = _repeated(size, outputs, scales[axis], mode == "exact")
            if times:
                apart = (*grad.shape[:dim], size, times, *grad.shape[dim + 1 :])
                grad = grad.reshape(apart).sum(dim + 1)
            elif size != outputs or mode == "cubic" or scales[axis] is not None:
                taps = _taps(mode, size, outputs, align, scales[axis])
                grad = _resampled_backward(grad, dim, size, taps)
        return grad

    return call


for _name, _mode, _count in (
    ("upsample_nearest1d", "nearest", 1),
    ("upsample_nearest2d", "nearest", 2),
    ("upsample_nearest3d", "nearest", 3),
    ("_upsample_nearest_exact1d", "exact", 1),
    ("_upsample_nearest_exact2d", "exact", 2),
    ("_upsample_nearest_exact3d", "exact", 3),
    ("upsample_linear1d", "linear", 1),
    ("upsample_bilinear2d", "linear", 2),
    ("upsample_trilinear3d", "linear", 3),
    ("upsample_bicubic2d", "cubic", 2),
):
    composition(f"aten.{_name}")(_upsample(_mode, _count))
    composition(f"aten.{_name}_backward")(_upsample_backward(_mode, _count))
