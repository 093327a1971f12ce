"""Pools, and their windows and those of convolutions: sizes, strides and pads by the standard's
attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, rule


@dataclass
class Windows:
    """One number for each spatial axis."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    outputs: list[int]

    @property
    def is_even(self) -> bool:
        """Whether pads are the same on both sides."""
        return self.before == self.after

    def padded(self, x: Tensor, value: float) -> Tensor:
        widths = [n for pair in zip(self.before, self.after, strict=True) for n in pair]
        if not any(widths):
            return x
        return F.pad(x, [w for i in reversed(range(len(self.kernel)))
                         for w in widths[2 * i : 2 * i + 2]], value=value)  # fmt: skip

    def places(self, x: Tensor) -> Iterator[Tensor]:
        """For each place in the window, what it sees of a padded `x`, for every output."""
        for place in product(*(range(n) for n in self.kernel)):
            index: list[Any] = [slice(None), slice(None)]
            for i, n in enumerate(place):
                start, step = n * self.dilations[i], self.strides[i]
                index.append(slice(start, start + (self.outputs[i] - 1) * step + 1, step))
            yield x[tuple(index)]


def windows_of(c: OnnxCall, x: Tensor, kernel: list[int]) -> Windows:
    """From strides, dilations, pads, auto_pad and ceil_mode, for the input `x` (N, C, ...)."""
    count = x.dim() - 2
    strides = list(c.attr("strides") or [1] * count)
    dilations = list(c.attr("dilations") or [1] * count)
    pads, auto, ceil = c.attr("pads"), c.attr("auto_pad", "NOTSET"), c.attr("ceil_mode", 0)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    before, after, outputs = [], [], []
    for i in range(count):
        size, step = x.shape[2 + i], strides[i]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            number = -(-size // step)
            total = max((number - 1) * step + reach[i] - size, 0)
            less = total // 2
            left = less if auto == "SAME_UPPER" else total - less
            right = total - left
        elif auto == "VALID":
            left, right, number = 0, 0, (size - reach[i]) // step + 1
        elif auto == "NOTSET":
            left, right = (pads[i], pads[i + count]) if pads else (0, 0)
            room = size + left + right - reach[i]
            number = room // step + 1
            if ceil:
                number = -(-room // step) + 1
                number -= int((number - 1) * step >= size + left)
                right = max(right, (number - 1) * step + reach[i] - size - left)
        else:
            raise c.refuse(f"its auto_pad is {auto!r}.")
        before.append(left)
        after.append(right)
        outputs.append(number)
    if any(n <= 0 for n in outputs):
        raise ValueError(f"no window of {kernel} fits into {tuple(x.shape)}")
    return Windows(list(kernel), strides, dilations, before, after, outputs)


def by_rank(c: OnnxCall, x: Tensor, functions: tuple[Any, Any, Any]) -> Any:
    """The function for one, two or three spatial axes."""
    if not 3 <= x.dim() <= 5:
        raise c.refuse(f"its input has {x.dim() - 2} spatial axes.")
    return functions[x.dim() - 3]


def with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    """`x` with a bias for each channel, where there is one."""
    return x if bias is None else x + bias.reshape([1, -1] + [1] * (x.dim() - 2))


_AVERAGES = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_MAXIMA = (F.max_pool1d, F.max_pool2d, F.max_pool3d)


def _total(at: Windows, x: Tensor) -> Tensor:
    return reduce(torch.add, at.places(x))


@rule("AveragePool 7-22")
def _average(c: OnnxCall) -> Tensor:
    """Pads count only where `count_include_pad` says so; what ceil_mode adds never counts."""
    x, kernel = c.tensor(0), c.attr("kernel_shape")
    at, counts = windows_of(c, x, kernel), bool(c.attr("count_include_pad"))
    pads, count = c.attr("pads"), len(kernel)
    plain = at.dilations == [1] * count
    outside = [*at.before, *at.after] != (pads or [0] * (2 * count))
    if plain and at.is_even and not outside and all(
        2 * p <= k for p, k in zip(at.before, kernel, strict=True)
    ):  # fmt: skip
        average = by_rank(c, x, _AVERAGES)
        found: Tensor = average(x, kernel, at.strides, at.before, False, counts)
        return found
    total = _total(at, at.padded(x, 0.0))
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    if counts and c.attr("auto_pad") == "NOTSET":
        pads = pads or [0] * (2 * count)
        stated = Windows(at.kernel, at.strides, at.dilations, pads[:count], pads[count:], [])
        ones = stated.padded(ones, 1.0)
        rest = [a - p for a, p in zip(at.after, pads[count:], strict=True)]
        beyond = Windows(at.kernel, at.strides, at.dilations, [0] * count, rest, [])
        ones = beyond.padded(ones, 0.0)
    else:
        ones = at.padded(ones, 1.0 if counts else 0.0)
    return total / _total(at, ones)


@rule("MaxPool 1-22")
def _max(c: OnnxCall) -> tuple[Tensor, ...]:
    x, kernel = c.tensor(0), c.attr("kernel_shape")
    at, dtype = windows_of(c, x, kernel), x.dtype
    column_major, indexed = c.attr("storage_order", 0), c.outputs()[1:] == [True]
    if indexed and column_major:
        raise c.refuse("its indices are in column-major order.")
    if not dtype.is_floating_point:
        x = x.to(torch.float32)
    narrow = all(2 * p <= k for p, k in zip(at.before, kernel, strict=True))
    padding = at.before if at.is_even and narrow else [0] * len(kernel)
    if padding != at.before or padding != at.after:
        if indexed:
            raise c.refuse("it gives indices, with pads that differ by side.")
        x = at.padded(x, -math.inf)
    pool = by_rank(c, x, _MAXIMA)
    if not indexed:
        return (pool(x, kernel, at.strides, padding, at.dilations).to(dtype),)
    values, places = pool(x, kernel, at.strides, padding, at.dilations, return_indices=True)
    plane = torch.arange(x.shape[0] * x.shape[1], device=x.device) * math.prod(x.shape[2:])
    plane = plane.reshape(x.shape[0], x.shape[1], *[1] * (x.dim() - 2))
    return values.to(dtype), places + plane


@rule("MaxUnpool 9-22", static=(2,))
def _max_unpool(c: OnnxCall) -> Tensor:
    """The indices count over the whole tensor that the pool read."""
    x, indices, kernel = c.tensor(0), c.tensor(1), c.attr("kernel_shape")
    count = len(kernel)
    strides = c.attr("strides") or [1] * count
    pads = c.attr("pads") or [0] * (2 * count)
    sizes = [
        (n - 1) * s + k - pads[i] - pads[i + count]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    inferred = [*x.shape[:2], *sizes]
    shape = c.ints(2) if c.has(2) else inferred
    flat = torch.zeros(math.prod(inferred), dtype=x.dtype, device=x.device)
    found = torch.scatter(flat, 0, indices.reshape(-1), x.reshape(-1)).reshape(inferred)
    widths = [w for n, m in zip(reversed(shape), reversed(inferred), strict=True)
              for w in (0, n - m)]  # fmt: skip
    if any(w < 0 for w in widths):
        raise c.refuse("its output_shape is smaller than the window's.")
    return F.pad(found, widths) if any(widths) else found


@rule("LpPool 2-22")
def _lp(c: OnnxCall) -> Tensor:
    x, kernel, p = c.tensor(0), c.attr("kernel_shape"), c.attr("p")
    at = windows_of(c, x, kernel)
    return _root(_total(at, _power(at.padded(x, 0.0), p)), p)


def _power(x: Tensor, p: int) -> Tensor:
    return x * x if p == 2 else torch.abs(x) if p == 1 else torch.pow(torch.abs(x), p)


def _root(x: Tensor, p: int) -> Tensor:
    return torch.sqrt(x) if p == 2 else x if p == 1 else torch.pow(x, 1.0 / p)


@rule("GlobalAveragePool 1-22", "GlobalMaxPool 1-22", "GlobalLpPool 2-22", named=True)
def _global(name: str, c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    axes = [*range(2, x.dim())]
    if name == "GlobalAveragePool":
        return torch.mean(x, axes, keepdim=True)
    if name == "GlobalMaxPool":
        return torch.amax(x, axes, keepdim=True)
    p = c.attr("p")
    return _root(torch.sum(_power(x, p), axes, keepdim=True), p)
