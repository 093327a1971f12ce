"""Normalisations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, rule

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
