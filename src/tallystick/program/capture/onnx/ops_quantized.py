"""Numbers of eight bits with a scale: uint8 and int32 alone, as the contract has no int8."""

from __future__ import annotations

import torch
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall
from tallystick.program.capture.onnx.ops_linear import convolved
from tallystick.program.capture.onnx.table import rule


def _along(c: OnnxCall, x: Tensor, values: Tensor) -> Tensor:
    """One number, or one for each place of an axis."""
    axis = c.attr("axis", 1)
    if c.attr("block_size", 0):
        raise c.refuse("it is quantized by blocks.")
    if values.dim() == 0 or values.numel() == 1:
        return values.reshape([1] * x.dim())
    return values.reshape([n if i == axis % x.dim() else 1 for i, n in enumerate(x.shape)])


def _known_kind(c: OnnxCall, place: int) -> torch.dtype:
    kind = c.tensor(place).dtype if c.has(place) else torch.uint8
    number = c.attr("output_dtype", 0)
    if number:
        kind = c.torch_dtype(number)
    if kind != torch.uint8:
        raise c.refuse("it quantizes to another type than uint8.")
    return kind


@rule("QuantizeLinear 10-28")
def _quantize(c: OnnxCall) -> Tensor:
    """round(x / scale) + zero point, ties to even, kept within 0 and 255."""
    x, scale, kind = c.tensor(0), c.tensor(1), _known_kind(c, 2)
    _ = c.attr("saturate"), c.attr("precision")
    found = torch.round(x / _along(c, x, scale))
    if c.has(2):
        found = found + _along(c, x, c.tensor(2)).to(x.dtype)
    return torch.clamp(found, 0.0, 255.0).to(kind)


@rule("DequantizeLinear 10-28")
def _dequantize(c: OnnxCall) -> Tensor:
    x, scale, number = c.tensor(0), c.tensor(1), c.attr("output_dtype", 0)
    if number not in (0, 1):
        raise c.refuse("its output is not float32.")
    found = x.to(torch.float32)
    if c.has(2):
        found = found - _along(c, x, c.tensor(2)).to(torch.float32)
    return found * _along(c, x, scale)


def _centred(c: OnnxCall, place: int, zero: int, axis: int) -> Tensor:
    """An operand less its zero point, as float32: whole numbers of nine bits."""
    x = c.tensor(place)
    if x.dtype != torch.uint8:
        raise c.refuse(f"input {place} is not of uint8.")
    found = x.to(torch.float32)
    if not c.has(zero):
        return found
    point = c.tensor(zero).to(torch.float32)
    if point.numel() > 1:
        point = point.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])
    return found - point.reshape([1] * x.dim()) if point.numel() == 1 else found - point


def _exact(c: OnnxCall, terms: int) -> None:
    """Products of such numbers are added exactly in float32 while sums stay below 2²⁴."""
    if terms * 255 * 255 >= 1 << 24:
        raise c.refuse(f"it adds {terms} products, which float32 may round.")


@rule("MatMulInteger 10")
def _matmul_integer(c: OnnxCall) -> Tensor:
    a, b = _centred(c, 0, 2, -2), _centred(c, 1, 3, -1)
    _exact(c, a.shape[-1])
    return torch.matmul(a, b).to(torch.int32)


@rule("ConvInteger 10")
def _conv_integer(c: OnnxCall) -> Tensor:
    x, w = _centred(c, 0, 2, 1), _centred(c, 1, 3, 0)
    _exact(c, w[0].numel())
    return convolved(c, x, w, None).to(torch.int32)


@rule("QLinearMatMul 10-21")
def _qlinear_matmul(c: OnnxCall) -> Tensor:
    a, b = _centred(c, 0, 2, -2), _centred(c, 3, 5, -1)
    _exact(c, a.shape[-1])
    scale = c.tensor(1) * c.tensor(4) / c.tensor(6)
    found = torch.round(torch.matmul(a, b) * scale) + c.tensor(7).to(torch.float32)
    return torch.clamp(found, 0.0, 255.0).to(_known_kind(c, 7))


@rule("DynamicQuantizeLinear 11")
def _dynamic_quantize(c: OnnxCall) -> tuple[Tensor, Tensor, Tensor]:
    x = c.tensor(0)
    low = torch.clamp(torch.amin(x), max=0.0)
    high = torch.clamp(torch.amax(x), min=0.0)
    scale = (high - low) / 255.0
    zero = torch.clamp(torch.round(-low / scale), 0.0, 255.0)
    found = torch.clamp(torch.round(x / scale) + zero, 0.0, 255.0)
    return found.to(torch.uint8), scale, zero.to(torch.uint8)
