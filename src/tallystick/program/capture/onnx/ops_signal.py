"""Fourier transforms, as products with matrices of cosines and sines."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tallystick.program.capture.onnx.call import Call
from tallystick.program.capture.onnx.ops_shape import _axis as axis_of
from tallystick.program.capture.onnx.ops_shape import padded
from tallystick.program.capture.onnx.table import rule


def _circle(rows: int, columns: int, size: int, c: Call) -> tuple[Tensor, Tensor]:
    """cos and sin of 2π·row·column/size: (rows, columns). The product is reduced as an integer."""
    row = torch.arange(rows, device=c.device).reshape(rows, 1)
    column = torch.arange(columns, device=c.device).reshape(1, columns)
    product = row * column
    turns = product - torch.div(product, size, rounding_mode="floor") * size
    angle = turns.to(torch.float32) * (2.0 * math.pi / size)
    return torch.cos(angle), torch.sin(angle)


def transformed(c: Call, x: Tensor, count: int, inverse: bool) -> Tensor:
    """`count` frequencies of axis −2; axis −1 is real, or real and imaginary."""
    size = x.shape[-2]
    cos, sin = _circle(count, size, size, c)
    sin = sin if inverse else -sin
    real = x[..., 0]
    found = [torch.matmul(real, cos.t()), torch.matmul(real, sin.t())]
    if x.shape[-1] == 2:
        imaginary = x[..., 1]
        found = [
            found[0] - torch.matmul(imaginary, sin.t()),
            found[1] + torch.matmul(imaginary, cos.t()),
        ]
    made = torch.stack(found, dim=-1)
    return made / size if inverse else made


@rule("DFT 17-20", static=(1, 2))
def _dft(c: Call) -> Tensor:
    x, inverse, onesided = c.tensor(0), bool(c.attr("inverse")), c.attr("onesided")
    axis = c.attr("axis") if c.version < 20 else (int(c.one(2)) if c.has(2) else -2)
    axis = axis_of(axis, x.dim())
    x = x.transpose(axis, -2)
    if inverse and onesided:
        return _real(c, x).transpose(axis, -2)
    if c.has(1):
        size = int(c.one(1))
        x = padded(x.narrow(-2, 0, min(size, x.shape[-2])), x.dim() - 2, 0,
                   max(size - x.shape[-2], 0), "constant", 0.0)  # fmt: skip
    count = x.shape[-2] // 2 + 1 if onesided else x.shape[-2]
    return transformed(c, x, count, inverse).transpose(axis, -2)


def _real(c: Call, x: Tensor) -> Tensor:
    """The real signal of half a spectrum; the other half mirrors it."""
    half = x.shape[-2]
    size = int(c.one(1)) if c.has(1) else 2 * (half - 1)
    x = x.narrow(-2, 0, min(half, size // 2 + 1))
    x = padded(x, x.dim() - 2, 0, size // 2 + 1 - x.shape[-2], "constant", 0.0)
    mirrored = torch.flip(x.narrow(-2, 1, (size + 1) // 2 - 1), (-2,))
    mirrored = torch.stack([mirrored[..., 0], -mirrored[..., 1]], dim=-1)
    whole = torch.cat([x, mirrored], dim=-2)
    return transformed(c, whole, size, True).narrow(-1, 0, 1)


@rule("STFT 17", static=(1, 3))
def _stft(c: Call) -> Tensor:
    """(batch, frames, frequencies, 2) of a signal (batch, length, 1 or 2)."""
    x, step, window, onesided = c.tensor(0), int(c.one(1)), c.optional(2), c.attr("onesided")
    size = int(c.one(3)) if c.has(3) else (window.shape[0] if window is not None else None)
    if size is None:
        raise c.refuse("it has neither window nor frame_length.")
    frames = torch.stack([x.narrow(1, i * step, size)
                          for i in range((x.shape[1] - size) // step + 1)], dim=1)  # fmt: skip
    if window is not None:
        frames = frames * window.reshape(-1, 1)
    return transformed(c, frames, size // 2 + 1 if onesided else size, False)
