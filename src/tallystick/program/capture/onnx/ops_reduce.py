"""Reductions over axes, and what is made of them: normalisations, and losses of classes. Classes
are axis 1.
"""

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


_WIDEST = 4096  # channels that LRN sums, one after the other


def _channels(x: Tensor, weights: Tensor) -> Tensor:
    return weights.reshape([1, -1] + [1] * (x.dim() - 2))


@rule("BatchNormalization 7-15", statistics=(3, 4))
def _batch(c: OnnxCall) -> tuple[Tensor, ...]:
    """With the file's statistics; or, in torch's modes, as torch does in training."""
    x, scale, bias, mean, variance = (c.tensor(i) for i in range(5))
    eps, momentum = c.attr("epsilon"), c.attr("momentum")
    trains, spatial = c.attr("training_mode", 0), c.attr("spatial", 1)
    if not spatial:
        raise c.refuse("its attribute spatial is 0.")
    if not trains:
        if any(c.outputs()[1:]):
            raise c.refuse("it has more than one output.")
        found = F.batch_norm(x, mean, variance, scale, bias, c.training, 1.0 - momentum, eps)
        return (found,)
    axes = [i for i in range(x.dim()) if i != 1]
    own = torch.mean(x, axes)
    centred = x - _channels(x, own)
    spread = torch.mean(centred * centred, axes)
    y = centred * torch.rsqrt(_channels(x, spread) + eps) * _channels(x, scale)
    moved = [old * momentum + new * (1.0 - momentum)
             for old, new in ((mean, own), (variance, spread))]  # fmt: skip
    return y + _channels(x, bias), *moved


@rule("InstanceNormalization 6-22")
def _instance(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    return F.instance_norm(x, None, None, c.tensor(1), c.tensor(2), True, 0.1, c.attr("epsilon"))


@rule("GroupNormalization 18-21")
def _group(c: OnnxCall) -> Tensor:
    x, groups, eps = c.tensor(0), c.attr("num_groups"), c.attr("epsilon")
    scale, bias, _ = c.tensor(1), c.tensor(2), c.attr("stash_type")
    if c.version < 21:  # one number for each group
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, groups, scale, bias, eps)


@rule("LayerNormalization 17")
def _layer(c: OnnxCall) -> tuple[Tensor, ...]:
    x, scale, bias = c.tensor(0), c.tensor(1), c.optional(2)
    eps, _ = c.attr("epsilon"), c.attr("stash_type")
    shape = x.shape[c.attr("axis") % x.dim() :]
    fits = scale.shape == shape and (bias is None or bias.shape == shape)
    y = F.layer_norm(x, shape, scale if fits else None, bias if fits else None, eps)
    if not fits:
        y = y * scale if bias is None else y * scale + bias
    if not any(c.outputs()[1:]):
        return (y,)
    axes = [*range(x.dim() - len(shape), x.dim())]
    mean = torch.mean(x, axes, keepdim=True)
    centred = x - mean
    variance = torch.mean(centred * centred, axes, keepdim=True)
    return y, mean, torch.rsqrt(variance + eps)


@rule("RMSNormalization 23")
def _rms(c: OnnxCall) -> Tensor:
    x, scale, eps, _ = c.tensor(0), c.tensor(1), c.attr("epsilon"), c.attr("stash_type")
    axes = [*range(c.attr("axis") % x.dim(), x.dim())]
    return x * torch.rsqrt(torch.mean(x * x, axes, keepdim=True) + eps) * scale


@rule("LpNormalization 1-22")
def _lp(c: OnnxCall) -> Tensor:
    """A row without length stays what it is: zero."""
    x, p, axis = c.tensor(0), c.attr("p"), c.attr("axis")
    if p not in (1, 2):
        raise c.refuse(f"its p is {p}.")
    size = torch.sum(torch.abs(x) if p == 1 else x * x, axis, keepdim=True)
    size = size if p == 1 else torch.sqrt(torch.where(size == 0, torch.ones_like(size), size))
    return x / torch.where(size == 0, torch.ones_like(size), size)


@rule("MeanVarianceNormalization 9-13")
def _mean_variance(c: OnnxCall) -> Tensor:
    x, axes = c.tensor(0), c.attr("axes")
    centred = x - torch.mean(x, axes, keepdim=True)
    return centred / (torch.sqrt(torch.mean(centred * centred, axes, keepdim=True)) + 1e-9)


@rule("LRN 1-13")
def _local_response(c: OnnxCall) -> Tensor:
    """x / (bias + alpha/size · Σ x²)^beta, the sum over neighbouring channels."""
    x, size, alpha = c.tensor(0), c.attr("size"), c.attr("alpha")
    if not 0 < size <= _WIDEST:
        raise c.refuse(f"a sum over {size} channels is not covered.")
    before = (size - 1) // 2
    widths = [0, 0] * (x.dim() - 2) + [before, size - 1 - before]
    squares = F.pad(x * x, widths)
    total = sum(
        (squares.narrow(1, i, x.shape[1]) for i in range(1, size)),
        squares.narrow(1, 0, x.shape[1]),
    )
    return x / torch.pow(total * (alpha / size) + c.attr("bias"), c.attr("beta"))
