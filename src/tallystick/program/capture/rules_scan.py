"""Compositions for products and running extremes along an axis, in log₂ n steps of slices.

A scan combines each element with the one 1, 2, 4, … places before it (Hillis and Steele, 1986).
"""

from __future__ import annotations

import math
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
        joined = combine(x.narrow(dim, 0, half), x.narrow(dim, half, half))
        x = joined if size == 2 * half else torch.cat([joined, x.narrow(dim, size - 1, 1)], dim)
    return x


def _as(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    if dtype is None and not x.is_floating_point():
        dtype = torch.int64
    return x if dtype is None else x.to(dtype)


def _product(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    if x.dim() == 0:
        return x.clone()
    shape = list(x.shape)
    if shape[dim] == 0:
        shape[dim] = 1
        made = torch.ones(shape, dtype=x.dtype, device=x.device)
    else:
        made = halved(x, dim, torch.mul)
    return made if keepdim else made.squeeze(dim)


@composition("aten.prod")
def _prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _product(_as(x, dtype).reshape(-1), 0, False)


@composition("aten.prod.dim_int")
def _prod_dim(
    x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    return _product(_as(x, dtype), dim, keepdim)


@composition("aten.cumprod")
def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    x = _as(x, dtype)
    if x.dim() == 0:
        return x.clone()
    return scan((x,), dim, lambda a, b: (a[0] * b[0],))[0]


@composition("aten.logcumsumexp")
def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Sums of exp(x − m) beside their running maximum m, so that each exp is taken once a step."""

    def combine(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        top = torch.maximum(a[0], b[0])
        # Where both are −∞, or the larger is ∞, the difference would be NaN.
        base = torch.where(top.abs() == math.inf, 0.0, top)
        total = a[1] * (a[0] - base).exp() + b[1] * (b[0] - base).exp()
        return top, total

    if x.dim() == 0:
        return x.clone()
    top, total = scan((x, torch.ones_like(x)), dim, combine)
    return torch.where(top.abs() == math.inf, top, top + total.log())


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
