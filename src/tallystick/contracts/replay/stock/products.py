"""Stock forms of products, sums, means, variances and scatters (NUMERICS 2, 3, 4, 6.16)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch.nn import functional

from tallystick.contracts.replay.stock.stock import STRETCH, Stock, rounded_number, stock_form
from tallystick.devices.torch import Tensor, check_indices
from tallystick.numerics.operators.common import output_mask
from tallystick.numerics.operators.dot import geometry
from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import Attrs

_ATEN: Any = torch.ops.aten


@stock_form("aten.mm", "aten.bmm")
def _mm(stock: Stock, _attrs: Attrs, a: Tensor, b: Tensor) -> list[Tensor]:
    return [stock.mm(a, b)]


@stock_form("aten.addmm")
def _addmm(stock: Stock, attrs: Attrs, c: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
    beta, alpha = rounded_number(attrs, "beta"), rounded_number(attrs, "alpha")
    if stock.order is None:
        out = stock.result((a.shape[0], b.shape[1]))
        return [torch.addmm(c, a, b, beta=beta, alpha=alpha, out=out)]
    product = stock.mm(a, b)
    product = product if alpha == 1 else product * alpha
    return [product if beta == 0 else product + (c if beta == 1 else c * beta)]


# -- convolution (2.6, 2.7) ------------------------------------------------------------------------
def _columns(x: Tensor, w: Tensor, attrs: Attrs) -> Tensor:
    """The taps of every output: [n, channels·kh·kw, outputs]."""
    stride, padding, dilation, _ = geometry("aten.convolution", attrs)
    return functional.unfold(x, w.shape[2:], dilation, padding, stride)


def _grouped(x: Tensor, groups: int, axis: int) -> tuple[Tensor, ...]:
    return x.chunk(groups, axis) if groups > 1 else (x,)


@stock_form("aten.convolution")
def _convolution(
    stock: Stock, attrs: Attrs, x: Tensor, w: Tensor, bias: Tensor | None = None
) -> list[Tensor]:
    stride, padding, dilation, groups = geometry("aten.convolution", attrs)
    if stock.order is None:
        zeros = [0, 0]
        return [_ATEN.convolution(x, w, bias, stride, padding, dilation, False, zeros, groups)]
    parts = []
    for x_part, w_part in zip(_grouped(x, groups, 1), _grouped(w, groups, 0), strict=True):
        columns = _columns(x_part, w_part, attrs)
        weight = w_part.flatten(1).expand(x.shape[0], -1, -1)
        parts.append(stock.mm(weight, columns))
    product = torch.cat(parts, 1)
    if bias is not None:
        product = product + bias[:, None]
    height = (x.shape[2] + 2 * padding[0] - dilation[0] * (w.shape[2] - 1) - 1) // stride[0] + 1
    return [product.reshape(x.shape[0], w.shape[0], height, -1)]


@stock_form("aten.convolution_backward")
def _convolution_backward(
    stock: Stock, attrs: Attrs, grad: Tensor, x: Tensor, w: Tensor
) -> list[Tensor]:
    mask = output_mask("aten.convolution_backward", attrs)
    stride, padding, dilation, groups = geometry("aten.convolution", attrs)
    if stock.order is None:
        sizes = [w.shape[0]]
        found = _ATEN.convolution_backward(
            grad, x, w, sizes, stride, padding, dilation, False, [0, 0], groups, list(mask)
        )
        return [f for f, on in zip(found, mask, strict=True) if on]
    made: list[Tensor] = []
    flat = grad.flatten(2)
    if mask[0]:
        parts = []
        for g_part, w_part in zip(_grouped(flat, groups, 1), _grouped(w, groups, 0), strict=True):
            weight = w_part.flatten(1).t().expand(x.shape[0], -1, -1)
            columns = stock.mm(weight, g_part)
            parts.append(
                functional.fold(columns, x.shape[2:], w.shape[2:], dilation, padding, stride)
            )
        made.append(torch.cat(parts, 1))
    if mask[1]:
        parts = []
        for g_part, x_part in zip(_grouped(flat, groups, 1), _grouped(x, groups, 1), strict=True):
            columns = _columns(x_part, w, attrs)
            left = g_part.transpose(0, 1).flatten(1)
            parts.append(stock.mm(left, columns.transpose(1, 2).flatten(0, 1)))
        made.append(torch.cat(parts, 0).reshape(w.shape))
    if mask[2]:
        made.append(stock.sum(grad, (0, 2, 3)))
    return made


# -- sums (3.4, 3.6, 3.7) --------------------------------------------------------------------------
def _keepdim(attrs: Attrs) -> bool:
    return bool(attrs.get("keepdim", False))


def _count(x: Tensor, axes: Iterable[int]) -> int:
    """The number of elements of x that become one."""
    return math.prod(x.shape[axis] for axis in axes)


@stock_form("aten.sum", "aten.sum.dim_IntList")
def _sum(stock: Stock, attrs: Attrs, x: Tensor) -> list[Tensor]:
    return [stock.sum(x, reduced_axes("aten.sum", attrs, x.dim()), _keepdim(attrs))]


@stock_form("aten.mean", "aten.mean.dim")
def _mean(stock: Stock, attrs: Attrs, x: Tensor) -> list[Tensor]:
    axes = reduced_axes("aten.mean", attrs, x.dim())
    if stock.order is None and axes:
        return [x.mean(axes, keepdim=_keepdim(attrs))]
    return [stock.sum(x, axes, _keepdim(attrs)) / _count(x, axes)]


@stock_form("aten.var_mean.correction")
def _var_mean(stock: Stock, attrs: Attrs, x: Tensor) -> list[Tensor]:
    axes = reduced_axes("aten.var_mean", attrs, x.dim())
    keep, correction = _keepdim(attrs), cast(float, attrs["correction"])
    n = _count(x, axes)
    mean = stock.sum(x, axes, True) / n
    var = stock.sum((x - mean) ** 2, axes, keep) / max(n - correction, 0.0)
    return [var, mean if keep or not axes else mean.reshape(var.shape)]


@stock_form("aten.cumsum")
def _cumsum(stock: Stock, attrs: Attrs, x: Tensor) -> list[Tensor]:
    dim = cast(int, attrs["dim"])
    if stock.order is None or x.dim() == 0 or not x.shape[dim]:
        return [torch.cumsum(x, dim)]
    # In pieces, each summed from its own beginning, as on a device with many threads.
    pieces = torch.tensor_split(x, stock.order.parts, dim)
    made: list[Tensor] = []
    for piece in pieces:
        before = made[-1].select(dim, -1).unsqueeze(dim) if made else None
        own = torch.cumsum(piece, dim)
        if piece.shape[dim]:
            made.append(own if before is None else own + before)
    return [torch.cat(made, dim)]


@stock_form("tallystick.sum_squares", narrow=True)
def _sum_squares(stock: Stock, _attrs: Attrs, x: Tensor) -> list[Tensor]:
    flat = x.reshape(-1)
    if stock.order is not None:
        wide = flat.to(stock.dtype)
        return [stock.sum(wide * wide, (0,))]
    total = torch.zeros((), dtype=stock.dtype, device=stock.device)
    for part in torch.split(flat, STRETCH):
        wide = part.to(stock.dtype)
        total += wide.dot(wide)
    return [total]


# -- scatters (4, 6.16) ----------------------------------------------------------------------------
@stock_form("aten.embedding_dense_backward")
def _embedding_backward(stock: Stock, attrs: Attrs, grad: Tensor, index: Tensor) -> list[Tensor]:
    weights, padding = cast(int, attrs["num_weights"]), cast(int, attrs["padding_idx"])
    check_indices("aten.embedding_dense_backward", index, weights)
    flat = grad.reshape(index.numel(), grad.shape[-1])
    (rows, index), _ = stock.in_order(0, flat, index.reshape(-1))
    if stock.device != "cpu":  # where index_add_ adds in whatever order its threads come
        return [_ATEN.embedding_dense_backward(rows, index, weights, padding, False)]
    if padding >= 0:  # one row more, for what is left out
        index = torch.where(index == padding, weights, index)
    out = stock.result((weights + (padding >= 0), rows.shape[1]))
    return [out.zero_().index_add_(0, index, rows)[:weights]]


@stock_form("aten.index_add")
def _index_add(
    stock: Stock, attrs: Attrs, x: Tensor, index: Tensor, source: Tensor
) -> list[Tensor]:
    axis = cast(int, attrs["dim"])
    check_indices("aten.index_add", index, x.shape[axis])
    order = stock.permutation(index.numel())
    if order is not None:
        index, source = index[order], source.index_select(axis, order)
    return [x.index_add(axis, index, source)]


@stock_form("aten.max_pool2d_with_indices_backward")
def _max_pool_backward(
    stock: Stock, _attrs: Attrs, grad: Tensor, x: Tensor, index: Tensor
) -> list[Tensor]:
    zeros = torch.zeros_like(x.flatten(-2))
    check_indices("aten.max_pool2d_with_indices_backward", index, zeros.shape[-1])
    (g, at), _ = stock.in_order(-1, grad.flatten(-2), index.flatten(-2))
    return [zeros.scatter_add(-1, at, g).reshape(x.shape)]
