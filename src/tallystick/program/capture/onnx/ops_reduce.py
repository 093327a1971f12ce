"""Reductions over axes, and the losses that they make of classes. Classes are axis 1."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, rule
from tallystick.program.capture.onnx.ops_shape import _axes as axes_of


def _by_square_root(x: Tensor, axes: list[int]) -> Tensor:
    return torch.sqrt(torch.sum(x * x, axes, keepdim=True))


def _product(x: Tensor, axes: list[int]) -> Tensor:
    for axis in axes:
        x = torch.prod(x, axis, keepdim=True)
    return x


def _summed(x: Tensor, axes: list[int]) -> Tensor:
    return torch.sum(x, axes, keepdim=True)


def _extremum(name: str, x: Tensor, axes: list[int]) -> Tensor:
    """An empty set's is the lowest or highest number; bools order as false before true."""
    if any(x.shape[axis] == 0 for axis in axes):
        sizes = [1 if i in axes else n for i, n in enumerate(x.shape)]
        infinite = float("-inf" if name == "ReduceMax" else "inf")
        return torch.full(sizes, infinite, dtype=x.dtype, device=x.device)
    if x.dtype == torch.bool:
        return _extremum(name, x.to(torch.int32), axes) != 0
    return (torch.amax if name == "ReduceMax" else torch.amin)(x, axes, keepdim=True)


def _log_sum_exp(x: Tensor, axes: list[int]) -> Tensor:
    if any(x.shape[axis] == 0 for axis in axes):
        return torch.log(_summed(x, axes))
    return torch.logsumexp(x, axes, keepdim=True)


@rule(
    "ReduceSum 1-13", "ReduceProd 1-18", "ReduceMax 1-20", "ReduceMin 1-20", "ReduceMean 1-18",
    "ReduceL1 1-18", "ReduceL2 1-18", "ReduceSumSquare 1-18", "ReduceLogSum 1-28",
    "ReduceLogSumExp 1-28", static=(1,), folds=True, named=True,
)  # fmt: skip
def _reduce(name: str, c: OnnxCall) -> Tensor:
    x, keeps = c.tensor(0), c.attr("keepdims")
    axes = axes_of(c, 13 if name == "ReduceSum" else 18, 1, x.dim())
    noop = c.attr("noop_with_empty_axes", 0)
    dtype = x.dtype
    whole = not axes and not noop
    axes = [*range(x.dim())] if whole else (axes or [])
    if name in ("ReduceMax", "ReduceMin"):
        found = _extremum(name, x, axes) if axes else x
    elif not axes and name in ("ReduceSum", "ReduceProd", "ReduceMean"):
        found = x
    else:
        by_name: dict[str, Callable[[Tensor, list[int]], Tensor]] = {
            "ReduceSum": _summed,
            "ReduceProd": _product,
            "ReduceMean": lambda x, a: torch.mean(x, a, keepdim=True),
            "ReduceL1": lambda x, a: _summed(torch.abs(x), a) if a else torch.abs(x),
            "ReduceL2": lambda x, a: _by_square_root(x, a) if a else torch.abs(x),
            "ReduceSumSquare": lambda x, a: _summed(x * x, a) if a else x * x,
            "ReduceLogSum": lambda x, a: torch.log(_summed(x, a) if a else x),
            "ReduceLogSumExp": lambda x, a: _log_sum_exp(x, a) if a else x,
        }
        found = by_name[name](x, axes).to(dtype)
    if keeps:
        return found
    return found.reshape([n for i, n in enumerate(found.shape) if i not in axes])


def _loss(c: OnnxCall, logs: Tensor) -> Tensor:
    """−weight·log p of each target; the mean is over the weights, zero for ignored targets."""
    target, weight = c.tensor(1).to(torch.int64), c.optional(2)
    ignored, how = c.attr("ignore_index"), c.attr("reduction")
    if ignored is not None:
        kept = target != ignored
        target = torch.where(kept, target, torch.zeros_like(target))
    loss = -torch.gather(logs, 1, target.unsqueeze(1)).squeeze(1)
    if weight is not None:
        weight = torch.index_select(weight, 0, target.reshape(-1)).reshape(target.shape)
    if ignored is not None:
        counted = kept.to(logs.dtype)
        weight = counted if weight is None else weight * counted
        # Selected and not multiplied: an ignored target's log may be infinite.
        loss = torch.where(kept, loss, torch.zeros_like(loss))
    if weight is not None:
        loss = loss * weight
    if how == "none":
        return loss
    if how == "sum":
        return torch.sum(loss)
    return torch.mean(loss) if weight is None else torch.sum(loss) / torch.sum(weight)


@rule("NegativeLogLikelihoodLoss 12-22")
def _nll(c: OnnxCall) -> Tensor:
    return _loss(c, c.tensor(0))


@rule("SoftmaxCrossEntropyLoss 12-13")
def _cross_entropy(c: OnnxCall) -> tuple[Tensor, ...]:
    logs = F.log_softmax(c.tensor(0), dim=1)
    loss = _loss(c, logs)
    return (loss, logs) if c.outputs()[1:] == [True] else (loss,)
