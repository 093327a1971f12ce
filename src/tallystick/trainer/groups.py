"""The steps of a loop that accumulates: groups of batches, of which an epoch's last one may be
smaller, and may end with a smaller batch (PROGRAM 6.10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.program.capture.api import Preparation, prepare

BATCH = "batch"  # the number that differs within a group
Loss = Callable[..., Any]  # of module, batch and the numbers of the step


def prepared_group(
    module: nn.Module,
    loss: Loss,
    example: Mapping[str, Any],
    optimizer: Any,
    *,
    each: int,
    micro_batches: int,
    loss_over: str,
    shrinks: bool,
    apart: bool = False,
    **more: Any,
) -> Preparation:
    """The step over the records of `example`, in batches of `each`, of which a loop accumulates
    `micro_batches`.

    A group of whole batches becomes micro-batches; one that ends with a smaller batch, or whose
    batches are computed `apart`, each in a way of its own, becomes a text 1, whose loss takes the
    batches one after the other. Where the group has fewer batches,
    `shrinks` says that the mean of their losses is their sum divided by `micro_batches` still.
    """
    if micro_batches == 1:
        return prepare(module, loss, example, optimizer, **more)
    whole, rest = divmod(len(next(iter(example.values()))), each)
    groups = whole + (rest > 0)
    if shrinks and groups < micro_batches:
        loss = _scaled(loss, groups / micro_batches)
    if not rest and not apart:
        more |= {"micro_batches": groups, "loss_over": loss_over}
    else:
        loss = _in_batches(loss, each, loss_over)
    return prepare(module, loss, example, optimizer, **more)


def _scaled(loss: Loss, share: float) -> Loss:
    return lambda module, batch, at: loss(module, batch, at) * share


def _of_batch(at: Any, number: int) -> Any:
    """The numbers of a step, of the batch `number` in its group."""
    known = vars(at)
    return SimpleNamespace(**known | {BATCH: known[BATCH] + number}) if BATCH in known else at


def _in_batches(loss: Loss, each: int, loss_over: str) -> Loss:
    """`loss` over one batch after the other; the mean of their losses, or the sum of their sums by
    that of their counts."""

    def whole(module: nn.Module, batch: Mapping[str, Tensor], at: Any) -> Tensor:
        count = len(next(iter(batch.values())))
        parts = [
            loss(module, {n: t[start : start + each] for n, t in batch.items()}, _of_batch(at, i))
            for i, start in enumerate(range(0, count, each))
        ]
        if loss_over == "mean":
            return torch.stack(parts).mean()
        sums, counts = zip(*parts, strict=True)
        return torch.stack(sums).sum() / torch.stack(counts).sum()

    return whole
