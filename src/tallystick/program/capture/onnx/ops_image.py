"""Sizes of images: Resize, GridSample and what belongs to them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, made_tensor, rule
from tallystick.program.capture.onnx.ops_shape import sliced

Array = np.ndarray


def _places(c: OnnxCall, size: int, scale: float, count: int, roi: tuple[float, float]) -> Array:
    """Where in the input each output lies, in binary64."""
    how = c.attr("coordinate_transformation_mode", "asymmetric")
    y, width = np.arange(count, dtype=np.float64), scale * size
    if how == "align_corners":
        return y * 0 if width == 1 else y * (size - 1) / (width - 1)
    if how == "asymmetric":
        return y / scale
    if how == "tf_crop_and_resize":
        start, end = roi
        if width == 1:
            return y * 0 + (end - start) * (size - 1) / 2 + start * (size - 1)
        return y * (end - start) * (size - 1) / (width - 1) + start * (size - 1)
    half: Array = (y + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel":
        return y * 0 - 0.5 if width == 1 else half
    if how == "half_pixel_symmetric":
        return half + size / 2 * (1 - count / width)
    if how == "half_pixel":
        return half
    raise c.refuse(f"its coordinate_transformation_mode is {how!r}.")


def _nearest(c: OnnxCall, at: Array) -> Array:
    how = c.attr("nearest_mode", "floor")
    rounding: dict[str, Callable[[Array], Array]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5), "floor": np.floor,
        "round_prefer_ceil": lambda x: np.floor(x + 0.5), "ceil": np.ceil,
    }  # fmt: skip
    return rounding[how](at)


def _kernel(c: OnnxCall, mode: str, distance: Array) -> Array:
    """The weight at a distance: a triangle, or the cubic with coefficient a."""
    x = np.abs(distance)
    if mode == "linear":
        return np.asarray(np.clip(1 - x, 0, 1))
    a = c.attr("cubic_coeff_a", -0.75)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _taps(c: OnnxCall, mode: str, at: Array, scale: float, size: int) -> list[tuple[Array, Array]]:
    """Pairs of places (outside of the input too) and weights; they sum up to the output."""
    if mode == "nearest":
        return [(_nearest(c, at), np.ones(at.shape))]
    narrow = min(scale, 1.0) if c.attr("antialias", 0) else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / narrow)
    places = [np.floor(at) + i for i in range(1 - reach, reach + 1)]
    weights = np.stack([_kernel(c, mode, (place - at) * narrow) for place in places])
    if c.attr("exclude_outside", 0):
        inside = np.stack([(place >= 0) & (place < size) for place in places])
        weights = weights * inside
    weights = weights / weights.sum(0)
    return [(p, w) for p, w in zip(places, weights, strict=True) if w.any()]


def _resized(x: Tensor, axis: int, taps: list[tuple[Array, Array]]) -> Tensor:
    """One axis, as a sum of chosen elements times numbers."""
    total, size = None, x.shape[axis]
    for places, weights in taps:
        index = np.clip(places, 0, size - 1).astype(np.int64)
        steps = np.diff(index)
        if len(index) and (len(index) == 1 or ((steps == steps[0]).all() and steps[0] > 0)):
            step = int(steps[0]) if len(index) > 1 else 1
            part = sliced(x, axis, range(int(index[0]), int(index[-1]) + 1, step))
        else:
            part = torch.index_select(x, axis, made_tensor(index, x.device))
        if (weights != 1).any():
            line = made_tensor(weights.astype(np.float32), x.device)
            part = part * line.reshape([-1] + [1] * (x.dim() - 1 - axis))
        total = part if total is None else total + part
    assert total is not None
    return total


def _sizes(c: OnnxCall, x: Tensor, axes: list[int]) -> tuple[dict[int, float], dict[int, int]]:
    """Scale and size of every axis that may change."""
    scales = c.array(2).reshape(-1) if c.has(2) and c.array(2).size else None
    policy = c.attr("keep_aspect_ratio_policy", "stretch")
    if scales is not None:
        by_axis = {axis: float(s) for axis, s in zip(axes, scales, strict=True)}
        return by_axis, {a: math.floor(x.shape[a] * s) for a, s in by_axis.items()}
    sizes = dict(zip(axes, c.ints(3), strict=True))
    by_axis = {axis: n / x.shape[axis] for axis, n in sizes.items()}
    if policy != "stretch":
        one = (min if policy == "not_larger" else max)(by_axis.values())
        by_axis = dict.fromkeys(axes, one)
        sizes = {axis: int(one * x.shape[axis] + 0.5) for axis in axes}
    return by_axis, sizes


@rule("Resize 11-19", static=(1, 2, 3))
def _resize(c: OnnxCall) -> Tensor:
    """Axis by axis: every output is a sum of inputs times numbers that only shapes determine."""
    x, mode, given = c.tensor(0), c.attr("mode"), c.attr("axes")
    axes = [a % x.dim() for a in given] if given is not None else [*range(x.dim())]
    scales, sizes = _sizes(c, x, axes)
    roi = c.array(1).reshape(-1) if c.has(1) and c.array(1).size else None
    outside, extrapolated = c.attr("extrapolation_value"), None
    if x.dtype != torch.float32:
        raise c.refuse("its input is not of float32.")
    for i, axis in enumerate(axes):
        part = (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[i + len(axes)]))
        scale, size, count = scales[axis], x.shape[axis], sizes[axis]
        if scale == 1.0 and count == size and part == (0.0, 1.0):
            continue
        at = _places(c, size, scale, count, part)
        if c.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
            gone = (at < 0) | (at > size - 1)
            if gone.any():
                line = made_tensor(gone, x.device).reshape([-1] + [1] * (x.dim() - 1 - axis))
                extrapolated = line if extrapolated is None else torch.logical_or(
                    extrapolated, line
                )  # fmt: skip
        x = _resized(x, axis, _taps(c, mode, at, scale, size))
    _read_all(c)
    if extrapolated is None:
        return x
    return torch.where(extrapolated, torch.full_like(x, outside), x)


def _read_all(c: OnnxCall) -> None:
    """Attributes of another mode mean nothing in this one."""
    for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value", "antialias",
                 "nearest_mode", "coordinate_transformation_mode",
                 "keep_aspect_ratio_policy"):  # fmt: skip
        c.attr(name)


@rule("Upsample 7-10", static=(1,))
def _upsample(c: OnnxCall) -> Tensor:
    x, mode = c.tensor(0), c.attr("mode")
    scales = c.attr("scales") if c.version < 9 else c.array(1).reshape(-1)
    for axis, scale in enumerate(float(s) for s in scales):
        if scale != 1.0:
            at = np.arange(math.floor(x.shape[axis] * scale), dtype=np.float64) / scale
            x = _resized(x, axis, _taps(c, mode, at, scale, x.shape[axis]))
    return x


_GRID_MODES = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest",
               "cubic": "bicubic", "bicubic": "bicubic"}  # fmt: skip


@rule("GridSample 16-22")
def _grid_sample(c: OnnxCall) -> Tensor:
    mode, corners = _GRID_MODES[c.attr("mode")], bool(c.attr("align_corners"))
    return F.grid_sample(c.tensor(0), c.tensor(1), mode, c.attr("padding_mode"), corners)


@rule("AffineGrid 20", static=(1,))
def _affine_grid(c: OnnxCall) -> Tensor:
    """Coordinates in [−1, 1], moved by the matrices: (N, [D,] H, W, axes)."""
    theta, size, corners = c.tensor(0), c.ints(1), c.attr("align_corners")
    lines: list[Tensor] = []
    spatial = size[2:]
    for i, n in reversed([*enumerate(spatial)]):
        step, start = (2.0 / (n - 1), -1.0) if corners and n > 1 else (2.0 / n, -1.0 + 1.0 / n)
        line = torch.arange(n, device=c.device).to(theta.dtype) * step + start
        shape = [n if j == i else 1 for j in range(len(spatial))]
        lines.append(line.reshape(shape).expand(spatial))
    base = torch.stack([*lines, torch.ones_like(lines[0])], dim=-1)
    flat = base.reshape(1, -1, len(spatial) + 1).expand(size[0], -1, -1)
    found = torch.matmul(flat, theta.transpose(1, 2))
    return found.reshape(size[0], *spatial, len(spatial))


@rule("Col2Im 18", static=(1, 2))
def _col2im(c: OnnxCall) -> Tensor:
    x, image, block = c.tensor(0), c.ints(1), c.ints(2)
    count = len(image)
    strides, dilations = c.attr("strides") or [1] * count, c.attr("dilations") or [1] * count
    pads: Any = c.attr("pads") or [0] * (2 * count)
    if count != 2:
        raise c.refuse(f"its image has {count} axes.")
    larger = [n + pads[i] + pads[i + count] for i, n in enumerate(image)]
    sizes = (tuple(larger), tuple(block), tuple(dilations), 0, tuple(strides))
    found = F.fold(x, *sizes)
    for i in range(count):
        found = found.narrow(2 + i, pads[i], image[i])
    return found
