"""Numbers of eight bits with a scale: uint8 and int32 alone, as the contract has no int8."""

from __future__ import annotations

import torch
from torch import Tensor

from tallystick.program.capture.onnx.call import Call
from tallystick.program.capture.onnx.table import rule


def _along(c: Call, x: Tensor, values: Tensor) -> Tensor:
    """One number, or one for each place of an axis."""
    axis = c.attr("axis", 1)
    if c.attr("block_size", 0):
        raise c.refuse("it is quantized by blocks.")
    if values.dim() == 0 or values.numel() == 1:
        return values.reshape([1] * x.dim())
    return values.reshape([n if i == axis % x.dim() else 1 for i, n in enumerate(x.shape)])


def _known_kind(c: Call, place: int) -> torch.dtype:
    kind = c.tensor(place).dtype if c.has(place) else torch.uint8
    number = c.attr("output_dtype", 0)
    if number:
        kind = c.torch_dtype(number)
    if kind != torch.uint8:
        raise c.refuse("it quantizes to another type than uint8.")
    return kind


@rule("QuantizeLinear 10-28")
def _quantize(c: Call) -> Tensor:
    """round(x / scale) + zero point, ties to even, kept within 0 and 255."""
    x, scale, kind = c.tensor(0), c.tensor(1), _known_kind(c, 2)
    _ = c.attr("saturate"), c.attr("precision")
    found = torch.round(x / _along(c, x, scale))
    if c.has(2):
        found = found + _along(c, x, c.tensor(2)).to(x.dtype)
    return torch.clamp(found, 0.0, 255.0).to(kind)


@rule("DequantizeLinear 10-28")
def _dequantize(c: Call) -> Tensor:
    x, scale, number = c.tensor(0), c.tensor(1), c.attr("output_dtype", 0)
    if number not in (0, 1):
        raise c.refuse("its output is not float32.")
    found = x.to(torch.float32)
    if c.has(2):
        found = found - _along(c, x, c.tensor(2)).to(torch.float32)
    return found * _along(c, x, scale)


@rule("DynamicQuantizeLinear 11")
def _dynamic_quantize(c: Call) -> tuple[Tensor, Tensor, Tensor]:
    x = c.tensor(0)
    low = torch.clamp(torch.amin(x), max=0.0)
    high = torch.clamp(torch.amax(x), min=0.0)
    scale = (high - low) / 255.0
    zero = torch.clamp(torch.round(-low / scale), 0.0, 255.0)
    found = torch.clamp(torch.round(x / scale) + zero, 0.0, 255.0)
    return found.to(torch.uint8), scale, zero.to(torch.uint8)
