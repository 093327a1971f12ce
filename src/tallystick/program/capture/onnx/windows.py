"""Windows of convolutions and pools: sizes, strides and pads by the standard's attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall


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
