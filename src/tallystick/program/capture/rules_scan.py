"""Compositions for products and running extremes along an axis, in log₂ n steps of slices.

A scan combines each element with the one 1, 2, 4, … places before it (Hillis and Steele, 1986).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tallystick.program.capture.decompose import composition

Combine = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, ...]]


def scan(parts: tuple[Tensor, ...], dim: int, combine: Combine) -> tuple[Tensor, ...]:
    """Inclusive scan: `combine(earlier, later)` must be associative."""
    size, shift = parts[0].shape[dim], 1
    while shift < size:
        earlier = tuple(p.narrow(dim, 0, size - shift) for p in parts)
        later = tuple(p.narrow(dim, shift, size - shift) for p in parts)
        joined = combine(earlier, later)
        parts = tuple(
            torch.cat([p.narrow(dim, 0, shift), new], dim)
            for p, new in zip(parts, joined, strict=True)
        )
        shift *= 2
    return parts


def halved(x: Tensor, dim: int, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Reduces axis `dim` of at least one element: the first half with the second, and again."""
    while (size := x.shape[dim]) > 1:
        half = size // 2
        left, right, *odd = torch.split(x, [half, half] + [1] * (size % 2), dim)
        x = torch.cat([combine(left, right), *odd], dim) if odd else combine(left, right)
    return x


def as_sum(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """As `dtype`; without one, integers and truth values as int64."""
    if dtype is None and not x.is_floating_point():
        dtype = torch.int64
    return x if dtype is None else x.to(dtype)


def product(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Along one axis, by halving."""
    if x.dim() == 0:
        return x.clone()
    shape = list(x.shape)
    if shape[dim] == 0:
        shape[dim] = 1
        made = torch.ones(shape, dtype=x.dtype, device=x.device)
        if x.requires_grad:  # one has a gradient of no elements, as torch's
            made = made + x.sum(dim, keepdim=True)
    else:
        made = halved(x, dim, torch.mul)
    return made if keepdim else made.squeeze(dim)


@composition("aten.prod")
def _prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return product(as_sum(x, dtype).reshape(-1), 0, False)


@composition("aten.prod.dim_int")
def _prod_dim(
    x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    return product(as_sum(x, dtype), dim, keepdim)


@composition("aten.cumprod")
def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    x = as_sum(x, dtype)
    if x.dim() == 0:
        return x.clone()
    return scan((x,), dim, lambda a, b: (a[0] * b[0],))[0]


@composition("aten.cumsum")
def _whole_cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Of integers, whose sums do not depend on an order."""
    x = as_sum(x, dtype)
    if x.dim() == 0:
        return x.clone()
    return scan((x,), dim, lambda a, b: (a[0] + b[0],))[0]


def _running(x: Tensor, dim: int, is_new: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """Running extremes and their places; of equal ones the last, and a NaN stays."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)

    def combine(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        take = is_new(b[0], a[0]) | (b[0] != b[0])
        return torch.where(take, b[0], a[0]), torch.where(take, b[1], a[1])

    values = x.to(torch.int64) if x.dtype in (torch.bool, torch.int32, torch.uint8) else x
    shape = [1] * x.dim()
    shape[dim] = x.shape[dim]
    place = torch.arange(x.shape[dim], device=x.device).view(shape).expand(x.shape)
    values, place = scan((values, place), dim, combine)
    return values.to(x.dtype), place


@composition("aten.cummax")
def _cummax(x: Tensor, dim: int) -> Any:
    return _running(x, dim, torch.ge)


@composition("aten.cummin")
def _cummin(x: Tensor, dim: int) -> Any:
    return _running(x, dim, torch.le)
