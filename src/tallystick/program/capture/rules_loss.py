"""Rules and compositions for losses (NUMERICS 7)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tallystick.program.capture.decompose import composition
from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.capture.schema import op_name

_REDUCTIONS = ("none", "mean", "sum")
_NONE, _MEAN, _SUM = range(3)


@lowering("aten.nll_loss_forward")
def _nll(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    if a["weight"] is not None or len(lo.shape(lo.value(a["self"]))) != 2:
        return lo.composed(node)
    return lo.emit_all(
        "aten.nll_loss_forward",
        lo.value(a["self"]),
        lo.value(a["target"]),
        reduction=_REDUCTIONS[a["reduction"]],
        ignore_index=a["ignore_index"],
    )


@lowering("aten.nll_loss_backward")
def _nll_backward(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    if a["weight"] is not None or len(lo.shape(lo.value(a["self"]))) != 2:
        return lo.composed(node)
    return lo.emit(
        "aten.nll_loss_backward",
        *(lo.value(a[k]) for k in ("grad_output", "self", "target", "total_weight")),
        reduction=_REDUCTIONS[a["reduction"]],
        ignore_index=a["ignore_index"],
    )


@lowering("aten.mse_loss", "aten.mse_loss_backward")
def _mse(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    operands = [lo.value(a[k]) for k in ("grad_output", "self", "target") if k in a]
    return lo.emit(op_name(node.target), *operands, reduction=_REDUCTIONS[a["reduction"]])


# -- negative log-likelihood with class weights ------------------------------------------------


def _weighted(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The rows; which of them count, their classes (0 for the others), their weights (else 1)."""
    rows, t = (x if x.dim() == 2 else x.unsqueeze(0)), target.reshape(-1)
    kept = t != ignore_index
    safe = torch.where(kept, t, 0)
    chosen = 1.0 if weight is None else weight.index_select(0, safe)
    return rows, kept, safe, torch.where(kept, chosen, 0.0)


@composition("aten.nll_loss_forward")
def _nll_weighted(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> Any:
    """Per row −w_t·x_t; `mean` divides by the sum of the rows' weights."""
    rows, kept, safe, factor = _weighted(x, target, weight, ignore_index)
    chosen = rows.gather(1, safe.unsqueeze(1)).squeeze(1)
    losses = torch.where(kept, -(chosen * factor), 0.0)
    total = factor.sum()
    if reduction == _NONE:
        return losses.reshape(target.shape), total
    return (losses.sum() / total if reduction == _MEAN else losses.sum()), total


@composition("aten.nll_loss_backward")
def _nll_weighted_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total: Tensor,
) -> Tensor:
    rows, kept, safe, factor = _weighted(x, target, weight, ignore_index)
    share = grad / total if reduction == _MEAN else grad
    pull = (-(share.reshape(-1) * factor)).unsqueeze(1)
    classes = torch.arange(rows.shape[1], device=x.device).unsqueeze(0)
    here = (classes == safe.unsqueeze(1)) & kept.unsqueeze(1)
    return torch.where(here, pull, 0.0).reshape(x.shape)


def _as_rows(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


@composition("aten.nll_loss2d_forward")
def _nll2d(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> Any:
    """The pixels are rows."""
    loss, total = torch.ops.aten.nll_loss_forward(
        _as_rows(x), target.reshape(-1), weight, reduction, ignore_index
    )
    return (loss.reshape(target.shape) if reduction == _NONE else loss), total


@composition("aten.nll_loss2d_backward")
def _nll2d_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total: Tensor,
) -> Tensor:
    flat = grad.reshape(-1) if reduction == _NONE else grad
    rows = torch.ops.aten.nll_loss_backward(
        flat, _as_rows(x), target.reshape(-1), weight, reduction, ignore_index, total
    )
    n, c, h, w = x.shape
    image: Tensor = rows.reshape(n, h, w, c).permute(0, 3, 1, 2)
    return image
