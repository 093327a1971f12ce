"""Products of matrices, and convolutions; also of numbers of eight bits with a scale, as uint8 and
int32 alone, since the contract has no int8.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, rule
from tallystick.program.capture.onnx.ops_pool import by_rank, windows_of, with_bias


@rule("MatMul 1-13")
def _matmul(c: OnnxCall) -> Tensor:
    return torch.matmul(c.tensor(0), c.tensor(1))


@rule("Gemm 7-13")
def _gemm(c: OnnxCall) -> Tensor:
    """alpha·A·B + beta·C; C may be broadcast."""
    a, b, bias = c.tensor(0), c.tensor(1), c.optional(2)
    alpha, beta = c.attr("alpha"), c.attr("beta")
    a = a.t() if c.attr("transA") else a
    transposed = c.attr("transB")
    if alpha == 1.0 and transposed and beta == 1.0 and bias is not None and bias.dim() == 1:
        return F.linear(a, b, bias)
    found = torch.matmul(a, b.t() if transposed else b)
    found = found if alpha == 1.0 else found * alpha
    if bias is None or beta == 0.0:
        return found
    return found + (bias if beta == 1.0 else bias * beta)


@rule("Einsum 12-28")
def _einsum(c: OnnxCall) -> Tensor:
    return torch.einsum(c.attr("equation"), *c.tensors())


@rule("Det 11-22")
def _det(c: OnnxCall) -> Tensor:
    found: Tensor = torch.linalg.det(c.tensor(0))
    return found


_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


@rule("Conv 1-22")
def _conv(c: OnnxCall) -> Tensor:
    return convolved(c, c.tensor(0), c.tensor(1), c.optional(2))


def convolved(c: OnnxCall, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """A convolution by the node's attributes."""
    groups = c.attr("group")
    kernel = c.attr("kernel_shape") or list(w.shape[2:])
    at = windows_of(c, x, kernel)
    padding = at.before if at.is_even else [0] * len(kernel)
    x = x if at.is_even else at.padded(x, 0.0)
    convolve = by_rank(c, x, _CONVOLUTIONS)
    found: Tensor = convolve(x, w, bias, at.strides, padding, at.dilations, groups)
    return found


@rule("ConvTranspose 1-22")
def _conv_transpose(c: OnnxCall) -> Tensor:
    """The whole result, cut by the pads (which may differ by side) or to the output's shape."""
    x, w, bias, groups = c.tensor(0), c.tensor(1), c.optional(2), c.attr("group")
    count = x.dim() - 2
    kernel = c.attr("kernel_shape") or list(w.shape[2:])
    strides = list(c.attr("strides") or [1] * count)
    dilations = list(c.attr("dilations") or [1] * count)
    extra = list(c.attr("output_padding") or [0] * count)
    pads, auto = list(c.attr("pads") or [0] * (2 * count)), c.attr("auto_pad")
    wanted = c.attr("output_shape")
    if auto in ("SAME_UPPER", "SAME_LOWER") and wanted is None:
        wanted = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is not None:
        wanted = wanted[-count:]
        for i in range(count):
            full = strides[i] * (x.shape[2 + i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
            total = full - wanted[i]
            if total < 0:  # the standard pads by zero then, and the output grows at its end
                extra[i], total = extra[i] - total, 0
            first = total // 2 if auto == "SAME_UPPER" else total - total // 2
            pads[i], pads[i + count] = first, total - first
    before, after = pads[:count], pads[count:]
    transpose = by_rank(c, x, _TRANSPOSED)
    fits = all(e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True))
    if before == after and fits:
        found: Tensor = transpose(x, w, bias, strides, before, extra, groups, dilations)
        return found
    found = transpose(x, w, None, strides, 0, 0, groups, dilations)
    widths = [w for e in reversed(extra) for w in (0, e)]
    found = F.pad(found, widths) if any(extra) else found
    for i in range(count):
        size = found.shape[2 + i] - before[i] - after[i]
        found = found.narrow(2 + i, before[i], size)
    return with_bias(found, bias)


@rule("CausalConvWithState 27")
def _causal_conv(c: OnnxCall) -> tuple[Tensor, Tensor]:
    """A depthwise convolution along time that begins with the state of the last call."""
    x, w, bias, state = c.tensor(0), c.tensor(1), c.optional(2), c.optional(3)
    activation, reach = c.attr("activation"), w.shape[2] - 1
    padded = F.pad(x, [reach, 0]) if state is None else torch.cat([state, x], dim=2)
    found = F.conv1d(padded, w, bias, groups=x.shape[1])
    if activation not in ("none", "silu", "swish"):
        raise c.refuse(f"its activation is {activation!r}.")
    found = found if activation == "none" else F.silu(found)
    return found, padded.narrow(2, padded.shape[2] - reach, reach)


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
