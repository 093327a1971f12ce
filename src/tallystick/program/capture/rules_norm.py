"""Compositions for norms, distances and normalisations by them; and rules for batch normalisation
(NUMERICS 6.12 - 6.14)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.decompose import composition
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.rules_round import pair
from tallystick.program.ir import Value


def vector_norm(x: Tensor, order: float, dim: list[int], keepdim: bool) -> Tensor:
    """The norm of |x| over the axes `dim`, which are at least one."""
    if order == 0:
        return (x != 0).to(x.dtype).sum(dim, keepdim)
    if order == 1:
        return x.abs().sum(dim, keepdim)
    if order == 2:
        return x.square().sum(dim, keepdim).sqrt()
    if order == math.inf:
        return x.abs().amax(dim, keepdim)
    if order == -math.inf:
        return x.abs().amin(dim, keepdim)
    return x.abs().pow(order).sum(dim, keepdim).pow(1.0 / order)


@composition("aten.linalg_vector_norm")
def _linalg_vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    if x.dim() == 0:
        return vector_norm(x.reshape(1), float(ord), [0], False)
    return vector_norm(x, float(ord), list(dim) if dim else list(range(x.dim())), keepdim)


# -- distances ----------------------------------------------------------------------------------


def _distance(difference: Tensor, p: float) -> Tensor:
    return vector_norm(difference, p, [-1], False)


def _lead(x: Tensor, y: Tensor) -> tuple[int, ...]:
    """The batch axes of both, broadcast."""
    lead = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])  # type: ignore[no-untyped-call]
    return tuple(lead)


def _by_product(x: Tensor, y: Tensor, p: float, mode: int | None) -> bool:
    """torch's own choice: from 25 points on, Euclidean distances come from a matrix product."""
    return p == 2 and (mode == 1 or (not mode and (x.shape[-2] > 25 or y.shape[-2] > 25)))


@composition("aten._cdist_forward")
def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    if x.shape[-1] == 0:
        lead = _lead(x, y)
        size = (*lead, x.shape[-2], y.shape[-2])
        return torch.zeros(size, dtype=x.dtype, device=x.device)
    if _by_product(x, y, p, compute_mode):
        squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1, keepdim=True).mT
        return (squares - 2.0 * torch.matmul(x, y.mT)).clamp(min=0).sqrt()
    return _distance(x.unsqueeze(-2) - y.unsqueeze(-3), p)


def _pull(grad: Tensor, difference: Tensor, p: float, distance: Tensor) -> Tensor:
    """The distances' gradient for each difference; zero where the distance is, as torch's."""
    grad, distance = grad.unsqueeze(-1), distance.unsqueeze(-1)
    if p == 1:
        return grad * difference.sign()
    if p == math.inf:
        return grad * difference.sign() * (difference.abs() == distance).to(grad.dtype)
    if p == 2:
        return torch.where(distance == 0, 0.0, grad * difference / distance)
    size = difference.abs()
    if p < 2:
        powers = difference.sign() * torch.where(size == 0, 0.0, size.pow(p - 1.0))
    else:
        powers = difference * size.pow(p - 2.0)
    return torch.where(distance == 0, 0.0, powers * (grad / distance.pow(p - 1.0)))


@composition("aten._cdist_backward")
def _cdist_backward(grad: Tensor, x: Tensor, y: Tensor, p: float, distance: Tensor) -> Tensor:
    """With the axes of both operands in front; torch itself sums over those that x lacks."""
    lead = _lead(x, y)
    if x.numel() == 0 or y.shape[-2] == 0 or math.prod(lead) == 0:
        return torch.zeros_like(x)
    x, y = x.expand(*lead, *x.shape[-2:]), y.expand(*lead, *y.shape[-2:])
    if p == 0:
        return torch.zeros_like(x, memory_format=torch.contiguous_format)
    if _by_product(x, y, p, None):
        ratio = torch.where(distance == 0, 0.0, grad / distance)
        return ratio.sum(-1, keepdim=True) * x - torch.matmul(ratio, y)
    return _pull(grad, x.unsqueeze(-2) - y.unsqueeze(-3), p, distance).sum(-2)


def _upper(n: int) -> list[tuple[int, int]]:
    """Where row i's pairs (i, j), j > i, stand among all pairs."""
    starts = [i * n - i * (i + 1) // 2 for i in range(n)]
    return [(starts[i], n - 1 - i) for i in range(n - 1)]


@composition("aten._pdist_forward")
def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    n = x.shape[0]
    if n < 2 or x.shape[1] == 0:
        return x.new_zeros(n * (n - 1) // 2)
    rows = [_distance(x[i : i + 1] - x[i + 1 :], p) for i in range(n - 1)]
    return torch.cat(rows)


@composition("aten._pdist_backward")
def _pdist_backward(grad: Tensor, x: Tensor, p: float, pdist: Tensor) -> Tensor:
    n = x.shape[0]
    if n < 2 or p == 0 or x.numel() == 0:
        return torch.zeros_like(x)

    def square(pairs: Tensor) -> Tensor:
        rows = [
            torch.cat([pairs.new_zeros(n - count), pairs.narrow(0, start, count)])
            for start, count in _upper(n)
        ]
        upper = torch.stack([*rows, pairs.new_zeros(n)])
        return upper + upper.mT

    difference = x.unsqueeze(-2) - x.unsqueeze(-3)
    return _pull(square(grad), difference, p, square(pdist)).sum(-2)


@composition("aten.dist")
def _dist(x: Tensor, y: Tensor, p: Any = 2) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x - y, float(p))
    return norm


@composition("aten.linalg_cross")
def _cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    x, y = pair(x, y)
    (a, b, c), (d, e, f) = x.unbind(dim), y.unbind(dim)
    return torch.stack([b * f - c * e, c * d - a * f, a * e - b * d], dim)


@composition("aten.addbmm")
def _addbmm(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """The batch's matrix products added up are one product of longer rows."""
    left = a.permute(1, 0, 2).reshape(a.shape[1], -1)
    return torch.addmm(c, left, b.reshape(-1, b.shape[2]), beta=beta, alpha=alpha)


@composition("aten._weight_norm_interface_backward")
def _weight_norm_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    along = (grad * v).sum(others, keepdim=True) if others else grad * v
    unit = v / norms
    return g / norms * (grad - unit * (along / norms)), along / norms


_TRAINING = "aten._native_batch_norm_legit_functional"
_BY_RUNNING = "aten._native_batch_norm_legit_no_training"


def _operands(lo: Lowerer, a: Arguments) -> list[Value | None]:
    names = ("input", "weight", "bias", "running_mean", "running_var")
    return [lo.optional(a.get(name)) for name in names]


def _by_running(lo: Lowerer, a: Arguments) -> Value:
    return lo.emit(_BY_RUNNING, *_operands(lo, a), eps=a["eps"])


@lowering(_TRAINING)
def _functional(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    operands = _operands(lo, a)
    if not a["training"]:
        return [_by_running(lo, a), None, None, *operands[3:]]
    return lo.emit_all(_TRAINING, *operands, momentum=a["momentum"], eps=a["eps"])


@lowering("aten.native_batch_norm", "aten._native_batch_norm_legit.no_stats")
def _in_place(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """The in-place forms of batch norm, for calls without running statistics to change."""
    if not a["training"]:
        # On the CPU torch's statistics are empty then; its meta kernel gives them a shape.
        none = [t.new_empty(0) for t in node.meta["val"][1:]]
        node.meta["val"] = (node.meta["val"][0], *none)
        return [_by_running(lo, a), *(lo.full((0,), 0, "f32") for _ in none)]
    if a.get("running_mean") is not None:
        raise UnsupportedOperatorError(
            "A normalisation that changes running statistics in place is not defined.",
            "Call torch.nn.functional.batch_norm, or normalise without running statistics.",
        )
    return lo.emit_all(_TRAINING, *_operands(lo, a), momentum=a["momentum"], eps=a["eps"])


@lowering(_BY_RUNNING)
def _no_training(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    return [_by_running(lo, a), None, None]


@lowering("aten.native_batch_norm_backward")
def _batch_norm_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Only statistics that the clause reads are operands: the batch's, or the running ones."""
    unread = ("running_mean", "running_var") if a["train"] else ("save_mean", "save_invstd")
    names = ("grad_out", "input", "weight", "running_mean", "running_var", "save_mean",
             "save_invstd")  # fmt: skip
    operands = [None if name in unread else lo.optional(a[name]) for name in names]
    mask = a["output_mask"]
    values = iter(
        lo.emit_all(
            "aten.native_batch_norm_backward",
            *operands,
            train=a["train"],
            eps=a["eps"],
            output_mask=mask,
        )
    )
    return [next(values) if wanted else None for wanted in mask]
