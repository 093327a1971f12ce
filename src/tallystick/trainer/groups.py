"""The steps of a loop that accumulates: groups of batches, of which an epoch's last one may be
smaller, and may end with a smaller batch (PROGRAM 6.10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.program.capture.api import CapturedStep, capture

Loss = Callable[[nn.Module, dict[str, Tensor]], Any]


def captured_group(
    module: nn.Module,
    loss: Loss,
    example: Mapping[str, Any],
    optimizer: Any,
    *,
    each: int,
    micro_batches: int,
    loss_over: str,
    shrinks: bool,
    **more: Any,
) -> CapturedStep:
    """The step over the records of `example`, in batches of `each`, of which a loop accumulates
    `micro_batches`.

    A group of whole batches becomes micro-batches; one that ends with a smaller batch becomes a
    text 1, whose loss takes the batches one after the other. Where the group has fewer batches,
    `shrinks` says that the mean of their losses is their sum divided by `micro_batches` still.
    """
    if micro_batches == 1:
        return capture(module, loss, example, optimizer, **more)
    whole, rest = divmod(len(next(iter(example.values()))), each)
    groups = whole + (rest > 0)
    if shrinks and groups < micro_batches:
        loss = _scaled(loss, groups / micro_batches)
    if not rest:
        more |= {"micro_batches": groups, "loss_over": loss_over}
    else:
        loss = _in_batches(loss, each, loss_over)
    return capture(module, loss, example, optimizer, **more)


def _scaled(loss: Loss, share: float) -> Loss:
    return lambda module, batch: loss(module, batch) * share


def _in_batches(loss: Loss, each: int, loss_over: str) -> Loss:
    """`loss` over one batch after the other; the mean of their losses, or the sum of their sums by
    that of their counts."""

    def whole(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        count = len(next(iter(batch.values())))
        parts = [
            loss(module, {name: tensor[at : at + each] for name, tensor in batch.items()})
            for at in range(0, count, each)
        ]
        if loss_over == "mean":
            return torch.stack(parts).mean()
        sums, counts = zip(*parts, strict=True)
        return torch.stack(sums).sum() / torch.stack(counts).sum()

    return whole
