"""Stock forms of softmax, layer and batch normalisation, losses (NUMERICS 6, 7).

The intermediates that a composite's clause names are binary64 here. Statistics that are an operand
of a gradient are the binary32 values that the forward pass put out.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch

from tallystick.contracts.replay.stock.stock import (
    STRETCH,
    Stock,
    placed,
    rounded_number,
    stock_form,
)
from tallystick.devices.torch import Tensor
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.common import output_mask
from tallystick.numerics.types import Attrs

_ATEN: Any = torch.ops.aten


# -- softmax (6.1 - 6.4) ---------------------------------------------------------------------------
@stock_form(
    *(
        f"aten._{log}softmax{gradient}"
        for log in ("", "log_")
        for gradient in ("", "_backward_data")
    ),
    named=True,
)
def _softmax(op: str, stock: Stock, attrs: Attrs, *xs: Tensor) -> list[Tensor]:
    """Of x, or the gradient of g and y."""
    dim, kernel = cast(int, attrs["dim"]), getattr(_ATEN, op.removeprefix("aten."))
    ordered, order = stock.in_order(dim, *xs)
    return [placed(kernel(*ordered, dim, xs[0].dtype if len(xs) > 1 else False), dim, order)]


# -- layer_norm (6.5, 6.6) -------------------------------------------------------------------------
def _flat_rows(x: Tensor, count: int) -> Tensor:
    """x as [rows, n], where n is the product of the last `count` axes."""
    return x.reshape(-1, math.prod(x.shape[x.dim() - count :]))


def _normalized_shape(attrs: Attrs) -> list[int]:
    return list(cast("tuple[int, ...]", attrs["normalized_shape"]))


@stock_form("aten.native_layer_norm")
def _layer_norm(
    stock: Stock, attrs: Attrs, x: Tensor, w: Tensor | None = None, b: Tensor | None = None
) -> list[Tensor]:
    shape, eps = _normalized_shape(attrs), rounded_number(attrs, "eps")
    (rows,), order = stock.in_order(1, _flat_rows(x, len(shape)))
    if order is None:
        return list(_ATEN.native_layer_norm(x, shape, w, b, eps))
    w, b = (None if t is None else t.reshape(-1)[order] for t in (w, b))
    y, mean, rstd = _ATEN.native_layer_norm(rows, [rows.shape[1]], w, b, eps)
    lead = [*x.shape[: x.dim() - len(shape)], *(1 for _ in shape)]
    return [placed(y, 1, order).reshape(x.shape), mean.reshape(lead), rstd.reshape(lead)]


@stock_form("aten.native_layer_norm_backward")
def _layer_norm_backward(
    stock: Stock,
    attrs: Attrs,
    g: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    w: Tensor | None = None,
    _b: Tensor | None = None,
) -> list[Tensor]:
    shape = _normalized_shape(attrs)
    mask = output_mask("aten.native_layer_norm_backward", attrs)
    turned, columns = stock.in_order(1, _flat_rows(g, len(shape)), _flat_rows(x, len(shape)))
    turned, lines = stock.in_order(0, *turned, mean.reshape(-1, 1), rstd.reshape(-1, 1))
    given, ordered, mean, rstd = turned
    found: list[Tensor] = []
    if mask[0]:
        # The gradient of a weight exists whether or not the forward pass had one (6.6).
        weight = None if w is None else stock.in_order(0, w.reshape(-1))[0][0]
        dx = _ATEN.native_layer_norm_backward(
            given, ordered, [given.shape[1]], mean, rstd, weight, None, [True, False, False]
        )[0]
        found.append(placed(placed(dx, 1, columns), 0, lines).reshape(x.shape))
    if mask[1]:
        dw = (given * ((ordered - mean) * rstd)).sum(0)
        found.append(placed(dw, 0, columns).reshape(shape))
    if mask[2]:
        found.append(placed(given.sum(0), 0, columns).reshape(shape))
    return found


# -- batch normalisation (6.12 - 6.14) -------------------------------------------------------------
def _per_channel(t: Tensor | None, x: Tensor, absent: float) -> Tensor | float:
    return absent if t is None else t.reshape(1, -1, *(1,) * (x.dim() - 2))


@stock_form("aten._native_batch_norm_legit_functional")
def _batch_norm(
    stock: Stock,
    attrs: Attrs,
    x: Tensor,
    w: Tensor | None = None,
    b: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
) -> list[Tensor]:
    (x,), order = stock.in_order(0, x)
    axes = (0, *range(2, x.dim()))
    eps, momentum = rounded_number(attrs, "eps"), rounded_number(attrs, "momentum")
    if eps == 0:  # where the variance is 0, torch has rstd 0, and the clause has infinity
        var, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
        rstd = torch.rsqrt(var)
        y = (x - mean) * rstd * _per_channel(w, x, 1.0) + _per_channel(b, x, 0.0)
        mean, rstd = mean.reshape(-1), rstd.reshape(-1)
    else:
        y, mean, rstd = _ATEN.native_batch_norm(x, w, b, None, None, True, momentum, eps)
    found = [placed(y, 0, order), mean, rstd]
    if running_mean is not None and running_var is not None:
        n = x.numel() // max(x.shape[1], 1)
        # torch, too, divides by n - 1, which is 0 for one element.
        spread = stock.sum((x - _per_channel(mean, x, 0.0)) ** 2, axes) / max(n - 1, 0)
        found += [
            torch.lerp(running_mean, mean, momentum),
            torch.lerp(running_var, spread, momentum),
        ]
    return found


@stock_form("aten._native_batch_norm_legit_no_training")
def _batch_norm_by_running(_stock: Stock, attrs: Attrs, *xs: Tensor | None) -> list[Tensor]:
    return [_ATEN.native_batch_norm(*xs, False, 0.0, rounded_number(attrs, "eps"))[0]]


@stock_form("aten.native_batch_norm_backward")
def _batch_norm_backward(
    stock: Stock, attrs: Attrs, g: Tensor, x: Tensor, w: Tensor | None, *statistics: Tensor | None
) -> list[Tensor]:
    (g, x), order = stock.in_order(0, g, x)
    mask, train = output_mask("aten.native_batch_norm_backward", attrs), bool(attrs["train"])
    if w is None:
        w = x.new_ones(x.shape[1])
    found = _ATEN.native_batch_norm_backward(
        g, x, w, *statistics, train, rounded_number(attrs, "eps"), list(mask)
    )
    made = [placed(found[0], 0, order) if mask[0] else None, *found[1:]]
    return [f for f, on in zip(made, mask, strict=True) if on and f is not None]


# -- losses (7) ------------------------------------------------------------------------------------
def _targets(op: str, attrs: Attrs, x: Tensor, t: Tensor) -> Tensor:
    """Which rows count: bool[R]. Raises RefusedOperandsError for one that is no class (7.1); one
    flag is read on the host."""
    counts = t != cast(int, attrs["ignore_index"])
    bad = ((t < 0) | (t >= x.shape[1])) & counts
    if bool(bad.any()):
        raise RefusedOperandsError(op, f"a target is not one of {x.shape[1]} classes.")
    return counts


def _reduced(stock: Stock, attrs: Attrs, losses: Tensor, counts: Tensor) -> Tensor:
    if attrs["reduction"] == "none":
        return losses
    total = stock.sum(losses, (0,))
    return total / counts.sum() if attrs["reduction"] == "mean" else total


def _columns(t: Tensor, counts: Tensor) -> Tensor:
    """t_r as indices [R, 1]; 0 for rows that do not count."""
    return torch.where(counts, t, 0)[:, None]


def _picked(x: Tensor, t: Tensor, counts: Tensor) -> Tensor:
    """x[r, t_r]; whatever for rows that do not count."""
    return x.gather(1, _columns(t, counts))[:, 0]


def _coefficient(attrs: Attrs, g: Tensor, counts: Tensor, count: Tensor) -> Tensor:
    """The factor of every row's gradient: [R, 1]."""
    each = g / count if attrs["reduction"] == "mean" else g
    return torch.where(counts, each, 0.0)[:, None]


def _row_blocks(x: Tensor) -> list[slice]:
    """The rows of x[R, C], in blocks that stay in a processor's cache."""
    rows = max(1, STRETCH // max(1, x.shape[1]))
    return [slice(r, r + rows) for r in range(0, x.shape[0], rows)]


@stock_form("tallystick.cross_entropy", narrow=True)
def _cross_entropy(stock: Stock, attrs: Attrs, x: Tensor, t: Tensor) -> list[Tensor]:
    counts = _targets("tallystick.cross_entropy", attrs, x, t)
    highest = x.amax(1).to(stock.dtype)
    total = torch.empty_like(highest)
    for at in _row_blocks(x):
        shifted = torch.sub(x[at], highest[at, None])
        total[at] = stock.sum(shifted.exp_(), (1,))
    losses = torch.log(total) - (_picked(x, t, counts) - highest)
    return [_reduced(stock, attrs, torch.where(counts, losses, 0.0), counts), highest, total]


@stock_form("tallystick.cross_entropy_backward", narrow=True)
def _cross_entropy_backward(
    stock: Stock, attrs: Attrs, g: Tensor, x: Tensor, t: Tensor, *saved: Tensor
) -> list[Tensor]:
    g, highest, total = (s.to(stock.dtype) for s in (g, *saved))
    counts = _targets("tallystick.cross_entropy_backward", attrs, x, t)
    c = _coefficient(attrs, g, counts, counts.sum())
    out, columns, ones = stock.result(x.shape), _columns(t, counts), counts.to(stock.dtype)
    for at in _row_blocks(x):
        torch.sub(x[at], highest[at, None], out=out[at]).exp_().div_(total[at, None])
        less = out[at].gather(1, columns[at]) - ones[at, None]
        out[at].scatter_(1, columns[at], less)
        # Not times c alone: a row that does not count is +0 whatever it was (7.3).
        out[at].mul_(c[at]).masked_fill_(~counts[at, None], 0.0)
    return [out]


@stock_form("aten.nll_loss_forward")
def _nll_loss(stock: Stock, attrs: Attrs, x: Tensor, t: Tensor) -> list[Tensor]:
    counts = _targets("aten.nll_loss_forward", attrs, x, t)
    losses = torch.where(counts, -_picked(x, t, counts), 0.0)
    return [_reduced(stock, attrs, losses, counts), counts.sum().to(torch.float64)]


@stock_form("aten.nll_loss_backward")
def _nll_loss_backward(
    _stock: Stock, attrs: Attrs, g: Tensor, x: Tensor, t: Tensor, count: Tensor
) -> list[Tensor]:
    counts = _targets("aten.nll_loss_backward", attrs, x, t)
    taken = torch.where(counts[:, None], -_coefficient(attrs, g, counts, count), 0.0)
    return [torch.zeros_like(x).scatter_(1, _columns(t, counts), taken)]


@stock_form("aten.mse_loss")
def _mse_loss(stock: Stock, attrs: Attrs, x: Tensor, y: Tensor) -> list[Tensor]:
    squares = (x - y) ** 2
    if attrs["reduction"] == "none":
        return [squares]
    total = stock.sum(squares.reshape(-1), (0,))
    return [total / squares.numel() if attrs["reduction"] == "mean" else total]


@stock_form("aten.mse_loss_backward")
def _mse_loss_backward(
    _stock: Stock, attrs: Attrs, g: Tensor, x: Tensor, y: Tensor
) -> list[Tensor]:
    factor = 2.0 * g
    return [(x - y) * (factor / x.numel() if attrs["reduction"] == "mean" else factor)]
