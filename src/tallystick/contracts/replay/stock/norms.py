"""Stock forms of softmax, layer and batch normalisation, losses (NUMERICS 6, 7).

The intermediates that a composite's clause names are binary64 here. Statistics that are an operand
of a gradient are the binary32 values that the forward pass put out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from tallystick.contracts.replay.stock.stock import STRETCH, Stock, rounded_number, stock_form
from tallystick.devices.torch_operands import Tensor, Tensors, maybe, need
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.operators.common import output_mask
from tallystick.numerics.types import Attrs

_ATEN: Any = torch.ops.aten


def _along(stock: Stock, dim: int, xs: list[Tensor], f: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """f of xs, with axis `dim` in the kind's order; the result has the natural order again."""
    order = stock.permutation(xs[0].shape[dim]) if xs[0].dim() else None
    if order is None:
        return f(xs)
    found = f([x.index_select(dim, order) for x in xs])
    return torch.empty_like(found).index_copy_(dim, order, found)


# -- softmax (6.1 - 6.4) ---------------------------------------------------------------------------
@stock_form("aten._softmax")
def _softmax(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    dim = cast(int, attrs["dim"])
    return [_along(stock, dim, [need(xs, 0)], lambda a: torch.softmax(a[0], dim))]


@stock_form("aten._log_softmax")
def _log_softmax(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    dim = cast(int, attrs["dim"])
    return [_along(stock, dim, [need(xs, 0)], lambda a: torch.log_softmax(a[0], dim))]


@stock_form("aten._softmax_backward_data")
def _softmax_backward(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    dim, operands = cast(int, attrs["dim"]), [need(xs, 0), need(xs, 1)]
    kernel = _ATEN._softmax_backward_data
    return [_along(stock, dim, operands, lambda a: kernel(a[0], a[1], dim, a[0].dtype))]


@stock_form("aten._log_softmax_backward_data")
def _log_softmax_backward(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    dim, operands = cast(int, attrs["dim"]), [need(xs, 0), need(xs, 1)]
    kernel = _ATEN._log_softmax_backward_data
    return [_along(stock, dim, operands, lambda a: kernel(a[0], a[1], dim, a[0].dtype))]


# -- layer_norm (6.5, 6.6) -------------------------------------------------------------------------
def _flat_rows(x: Tensor, count: int) -> Tensor:
    """x as [rows, n], where n is the product of the last `count` axes."""
    n = 1
    for size in x.shape[x.dim() - count :]:
        n *= size
    return x.reshape(-1, n)


@stock_form("aten.native_layer_norm")
def _layer_norm(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    x, w, b = need(xs, 0), maybe(xs, 1), maybe(xs, 2)
    shape, eps = (
        list(cast("tuple[int, ...]", attrs["normalized_shape"])),
        rounded_number(attrs, "eps"),
    )
    order = stock.permutation(_flat_rows(x, len(shape)).shape[1])
    if order is None:
        return list(_ATEN.native_layer_norm(x, shape, w, b, eps))
    rows = _flat_rows(x, len(shape)).index_select(1, order)
    w = None if w is None else w.reshape(-1)[order]
    b = None if b is None else b.reshape(-1)[order]
    y, mean, rstd = _ATEN.native_layer_norm(rows, [rows.shape[1]], w, b, eps)
    placed = torch.empty_like(y).index_copy_(1, order, y).reshape(x.shape)
    lead = [*x.shape[: x.dim() - len(shape)], *(1 for _ in shape)]
    return [placed, mean.reshape(lead), rstd.reshape(lead)]


@stock_form("aten.native_layer_norm_backward")
def _layer_norm_backward(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    g, x, mean, rstd = (need(xs, i) for i in range(4))
    w = maybe(xs, 4)
    shape = list(cast("tuple[int, ...]", attrs["normalized_shape"]))
    mask = [bool(on) for on in cast("tuple[bool, ...]", attrs["output_mask"])]
    rows, grads = _flat_rows(x, len(shape)), _flat_rows(g, len(shape))
    columns, lines = stock.permutation(rows.shape[1]), stock.permutation(rows.shape[0])
    if columns is None or lines is None:
        columns, lines = (torch.arange(rows.shape[k], device=x.device) for k in (1, 0))
        ordered, given = rows, grads
    else:
        ordered, given = rows[lines][:, columns], grads[lines][:, columns]
    # The gradient of a weight exists whether or not the forward pass had one (6.6).
    weight = None if w is None else w.reshape(-1)[columns]
    flat_mean, flat_rstd = mean.reshape(-1, 1)[lines], rstd.reshape(-1, 1)[lines]
    n = rows.shape[1]
    found: list[Tensor] = []
    if mask[0]:
        dx = _ATEN.native_layer_norm_backward(
            given, ordered, [n], flat_mean, flat_rstd, weight, None, [True, False, False]
        )[0]
        placed = torch.empty_like(rows)
        placed[lines[:, None], columns] = dx
        found.append(placed.reshape(x.shape))
    if mask[1]:
        dw = (given * ((ordered - flat_mean) * flat_rstd)).sum(0)
        found.append(torch.empty_like(dw).index_copy_(0, columns, dw).reshape(shape))
    if mask[2]:
        db = given.sum(0)
        found.append(torch.empty_like(db).index_copy_(0, columns, db).reshape(shape))
    return found


# -- batch normalisation (6.12 - 6.14) -------------------------------------------------------------
def _in_order(stock: Stock, *tensors: Tensor) -> tuple[list[Tensor], Tensor | None]:
    """Tensors [N, C, …] with their batch axis in the kind's order, and that order."""
    order = stock.permutation(tensors[0].shape[0])
    if order is None:
        return list(tensors), None
    return [t.index_select(0, order) for t in tensors], order


def _placed(y: Tensor, order: Tensor | None) -> Tensor:
    return y if order is None else torch.empty_like(y).index_copy_(0, order, y)


def _per_channel(t: Tensor | None, x: Tensor, absent: float) -> Tensor | float:
    return absent if t is None else t.reshape(1, -1, *(1,) * (x.dim() - 2))


@stock_form("aten._native_batch_norm_legit_functional")
def _batch_norm(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    (x,), order = _in_order(stock, need(xs, 0))
    w, b, running_mean, running_var = (maybe(xs, i) for i in range(1, 5))
    eps, momentum = rounded_number(attrs, "eps"), rounded_number(attrs, "momentum")
    if eps == 0:  # where the variance is 0, torch has rstd 0, and the clause has infinity
        axes = (0, *range(2, x.dim()))
        var, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
        rstd = torch.rsqrt(var)
        y = (x - mean) * rstd * _per_channel(w, x, 1.0) + _per_channel(b, x, 0.0)
        mean, rstd = mean.reshape(-1), rstd.reshape(-1)
    else:
        y, mean, rstd = _ATEN.native_batch_norm(x, w, b, None, None, True, momentum, eps)
    found = [_placed(y, order), mean, rstd]
    if running_mean is not None and running_var is not None:
        axes = (0, *range(2, x.dim()))
        n = x.numel() // max(x.shape[1], 1)
        about = mean.reshape(1, -1, *(1,) * (x.dim() - 2))
        # torch, too, divides by n - 1, which is 0 for one element.
        spread = stock.sum((x - about) ** 2, axes) / max(n - 1, 0)
        found += [
            torch.lerp(running_mean, mean, momentum),
            torch.lerp(running_var, spread, momentum),
        ]
    return found


@stock_form("aten._native_batch_norm_legit_no_training")
def _batch_norm_by_running(_stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    x, w, b, running_mean, running_var = (maybe(xs, i) for i in range(5))
    eps = rounded_number(attrs, "eps")
    y: Tensor = _ATEN.native_batch_norm(x, w, b, running_mean, running_var, False, 0.0, eps)[0]
    return [y]


@stock_form("aten.native_batch_norm_backward")
def _batch_norm_backward(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    (g, x), order = _in_order(stock, need(xs, 0), need(xs, 1))
    w, running_mean, running_var, mean, rstd = (maybe(xs, i) for i in range(2, 7))
    mask, train = output_mask("aten.native_batch_norm_backward", attrs), bool(attrs["train"])
    if w is None:
        w = x.new_ones(x.shape[1])
    found = _ATEN.native_batch_norm_backward(
        g,
        x,
        w,
        running_mean,
        running_var,
        mean,
        rstd,
        train,
        rounded_number(attrs, "eps"),
        list(mask),
    )
    made = [_placed(found[0], order) if mask[0] else None, *found[1:]]
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
def _cross_entropy(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    x, t = need(xs, 0), need(xs, 1)
    counts = _targets("tallystick.cross_entropy", attrs, x, t)
    highest = x.amax(1).to(stock.dtype)
    total = torch.empty_like(highest)
    for at in _row_blocks(x):
        shifted = torch.sub(x[at], highest[at, None])
        total[at] = stock.sum(shifted.exp_(), (1,))
    losses = torch.log(total) - (_picked(x, t, counts) - highest)
    return [_reduced(stock, attrs, torch.where(counts, losses, 0.0), counts), highest, total]


@stock_form("tallystick.cross_entropy_backward", narrow=True)
def _cross_entropy_backward(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    x, t = need(xs, 1), need(xs, 2)
    g, highest, total = (need(xs, i).to(stock.dtype) for i in (0, 3, 4))
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
def _nll_loss(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    x, t = need(xs, 0), need(xs, 1)
    counts = _targets("aten.nll_loss_forward", attrs, x, t)
    losses = torch.where(counts, -_picked(x, t, counts), 0.0)
    return [_reduced(stock, attrs, losses, counts), counts.sum().to(torch.float64)]


@stock_form("aten.nll_loss_backward")
def _nll_loss_backward(_stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    g, x, t, count = (need(xs, i) for i in range(4))
    counts = _targets("aten.nll_loss_backward", attrs, x, t)
    taken = torch.where(counts[:, None], -_coefficient(attrs, g, counts, count), 0.0)
    return [torch.zeros_like(x).scatter_(1, _columns(t, counts), taken)]


@stock_form("aten.mse_loss")
def _mse_loss(stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    squares = (need(xs, 0) - need(xs, 1)) ** 2
    if attrs["reduction"] == "none":
        return [squares]
    total = stock.sum(squares.reshape(-1), (0,))
    return [total / squares.numel() if attrs["reduction"] == "mean" else total]


@stock_form("aten.mse_loss_backward")
def _mse_loss_backward(_stock: Stock, attrs: Attrs, xs: Tensors) -> list[Tensor]:
    g, x, y = (need(xs, i) for i in range(3))
    factor = 2.0 * g
    return [(x - y) * (factor / x.numel() if attrs["reduction"] == "mean" else factor)]
