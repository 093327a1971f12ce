"""Losses of classes. Classes are axis 1."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall
from tallystick.program.capture.onnx.table import rule


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
