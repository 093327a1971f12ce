"""Compositions for sampling an image at the points of a grid, and its gradients (NUMERICS 9, 4.3).

A sample is the sum of its taps times their weights, taps in row-major order of the cell. A tap
outside of the image reads a row of zeros, whatever the image holds. The image's gradient adds tap
by tap, each in row-major order of the points. A point that is not finite has the sample that
torch's kernels for the CPU give it; they differ for images of two and of three axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tallystick.program.capture.decompose import composition
from tallystick.program.capture.rules_sample import cubic_weights

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
# Coordinates this far outside behave as those farther outside do.
_FAR = 2.0**22


def _within(x: Tensor, low: float, high: float) -> Tensor:
    """x limited to [low, high]; what is not a number becomes `low`."""
    return torch.where(x >= low, x, low).clamp(max=high)


def _reflected(x: Tensor, size: int, align: bool) -> tuple[Tensor, Tensor]:
    """x reflected at the image's edges until it lies inside, and the sign of its slope."""
    low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
    if span == 0.0:
        return torch.zeros_like(x), torch.zeros_like(x)
    x = _within(x, -_FAR, _FAR)
    distance = (x - low).abs()
    turns = torch.floor(distance / span)
    extra = distance - turns * span
    even = turns - 2.0 * torch.floor(turns * 0.5) == 0.0
    slope = torch.where(even, 1.0, -1.0) * torch.where(x < low, -1.0, 1.0)
    return torch.where(even, extra + low, (span + low) - extra), slope


def _limited(x: Tensor, size: int, padding: int, align: bool, lost: float) -> tuple[Tensor, Tensor]:
    """The coordinate that is sampled, and its slope by x.

    `lost` is the place of a coordinate that no edge limits, or no reflection brings inside.
    """
    slope = torch.ones_like(x)
    if padding == _ZEROS:
        return _within(x, -2.0, size + 1.0), slope
    if padding == _REFLECTION:
        finite = x.abs() < math.inf
        x, slope = _reflected(x, size, align)
        x = torch.where(finite, x, lost)
    else:
        x = torch.where(x == x, x, lost)
    inside = (x > 0.0) & (x < size - 1.0)
    return _within(x, 0.0, size - 1.0), torch.where(inside, slope, 0.0)


@dataclass
class _Tap:
    """One place along an axis per point: i64, its weight, and the weight's slope by grid."""

    place: Tensor
    weight: Tensor | None
    slope: Tensor | None


def _cubic_slopes(t: Tensor) -> list[Tensor]:
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return (3.0 * (a + 2.0) * x - 2.0 * (a + 3.0)) * x

    def far(x: Tensor) -> Tensor:
        return (3.0 * a * x - 10.0 * a) * x + 8.0 * a

    return [far(t + 1.0), near(t), -near(1.0 - t), -far(2.0 - t)]


def _taps(at: Tensor, size: int, mode: int, padding: int, align: bool, flat: bool) -> list[_Tap]:
    """The taps along one axis of points at `at`, in [−1, 1]; `flat` says that there are two axes.

    In torch's kernel for two axes a weight is NaN where the point is not finite, but where an edge
    limits it. What is lost stands at the first place of an axis, and at the last one of three axes.
    """
    lost = 0.0 if flat else size - 1.0
    factor = (size - 1) / 2.0 if align else size / 2.0
    x = (at + 1.0) * factor if align else ((at + 1.0) * float(size) - 1.0) * 0.5
    if mode == _CUBIC:
        finite = x.abs() < math.inf
        # Far points read zeros or the edge, as points just outside do.
        x = _within(x, -_FAR, _FAR)
        cell = torch.floor(x)
        part = torch.where(finite, x - cell, math.nan)
        taps = []
        pairs = zip(cubic_weights(part), _cubic_slopes(part), strict=True)
        for k, (weight, slope) in enumerate(pairs):
            place = _limited(cell + float(k - 1), size, padding, align, lost)[0]
            taps.append(_Tap(place.to(torch.int64), weight, slope * factor))
        return taps
    finite = x.abs() < math.inf
    x, slope = _limited(x, size, padding, align, lost)
    if mode == _NEAREST:
        return [_Tap(torch.round(x).to(torch.int64), None, None)]
    cell = torch.floor(x)
    part, place = x - cell, cell.to(torch.int64)
    if flat and padding == _ZEROS:
        part = torch.where(finite, part, math.nan)
    slope = slope * factor
    return [_Tap(place, 1.0 - part, -slope), _Tap(place + 1, part, slope)]


class _Grid:
    """The taps of all points, in rows: a point has one row of channels, and the image one per
    place, then one of zeros."""

    def __init__(self, image: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> None:
        self.images, self.channels, *self.sides = image.shape
        self.points = grid.shape[1:-1]
        count = len(self.sides)
        self.axes = [
            # The last coordinate of a point belongs to the first axis.
            _taps(grid.select(-1, count - 1 - i).reshape(-1), n, mode, padding, align, count == 2)
            for i, n in enumerate(self.sides)
        ]
        self.places = self.images
        for n in self.sides:
            self.places *= n
        first = torch.arange(self.images, device=grid.device) * (self.places // self.images)
        each = grid.numel() // (self.images * count)
        self.first = first.view(-1, 1).expand(self.images, each).reshape(-1)
        self.corners = list(itertools.product(*self.axes))

    def rows(self, image: Tensor) -> Tensor:
        order = (0, *range(2, image.dim()), 1)
        rows = image.permute(order).reshape(self.places, self.channels)
        return torch.cat([rows, rows.new_zeros(1, self.channels)])

    def of_points(self, rows: Tensor) -> Tensor:
        """Rows of points as [images, channels, points…]."""
        apart = rows.view(self.images, *self.points, self.channels)
        return apart.permute(0, -1, *range(1, apart.dim() - 1))

    def place(self, corner: Sequence[_Tap]) -> Tensor:
        """The corner's row of the image; the row of zeros outside."""
        inside, place = None, self.first
        stride = self.places // self.images
        for tap, n in zip(corner, self.sides, strict=True):
            stride //= n
            here = (tap.place >= 0) & (tap.place < n)
            inside = here if inside is None else inside & here
            place = place + tap.place * stride
        assert inside is not None
        return torch.where(inside, place, self.places)

    @staticmethod
    def weight(corner: Sequence[_Tap], slope_of: int | None = None) -> Tensor | None:
        """The product of the axes' weights, with one axis's slope instead of its weight."""
        product: Tensor | None = None
        for axis, tap in enumerate(corner):
            factor = tap.slope if axis == slope_of else tap.weight
            if factor is None:
                return None
            product = factor if product is None else product * factor
        return product


def _sampled(image: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    taken = _Grid(image, grid, mode, padding, align)
    rows, total = taken.rows(image), None
    for corner in taken.corners:
        part = rows.index_select(0, taken.place(corner))
        weight = taken.weight(corner)
        part = part if weight is None else part * weight.view(-1, 1)
        total = part if total is None else total + part
    assert total is not None
    return taken.of_points(total)


def _sampled_backward(
    grad: Tensor,
    image: Tensor,
    grid: Tensor,
    mode: int,
    padding: int,
    align: bool,
    output_mask: Sequence[bool],
) -> Any:
    taken = _Grid(image, grid, mode, padding, align)
    high = grad.permute(0, *range(2, grad.dim()), 1).reshape(-1, taken.channels)
    of_image = of_grid = None
    if output_mask[0]:
        added = high.new_zeros(taken.places + 1, taken.channels)
        for corner in taken.corners:
            weight = taken.weight(corner)
            part = high if weight is None else high * weight.view(-1, 1)
            added = added.index_add(0, taken.place(corner), part)
        rows = added[: taken.places].view(taken.images, *taken.sides, taken.channels)
        of_image = rows.permute(0, -1, *range(1, rows.dim() - 1))
    if output_mask[1] and mode == _NEAREST:
        of_grid = torch.zeros_like(grid)
    elif output_mask[1]:
        rows = taken.rows(image)
        slopes: list[Tensor | None] = [None for _ in taken.sides]
        for corner in taken.corners:
            along = (rows.index_select(0, taken.place(corner)) * high).sum(1)
            for axis, known in enumerate(slopes):
                factor = taken.weight(corner, axis)
                assert factor is not None
                slopes[axis] = along * factor if known is None else known + along * factor
        found = [slope for slope in reversed(slopes) if slope is not None]
        of_grid = torch.stack(found, -1).view(grid.shape)
    return of_image, of_grid


for _name in ("grid_sampler_2d", "grid_sampler_3d"):
    composition(f"aten.{_name}")(_sampled)
    composition(f"aten.{_name}_backward")(_sampled_backward)
