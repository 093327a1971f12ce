"""The steps of a loop that accumulates: groups of batches, of which an epoch's last one may be
smaller, and may end with a smaller batch (PROGRAM 6.10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture.api import Preparation, prepare
from tallystick.program.capture.micro import MEAN, SUM, collector

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
        loss = in_batches(loss, each, loss_over)
    return prepare(module, loss, example, optimizer, **more)


def _scaled(loss: Loss, share: float) -> Loss:
    return lambda module, batch, at: loss(module, batch, at) * share


def _of_batch(at: Any, number: int) -> Any:
    """The numbers of a step, of the batch `number` in its group."""
    known = vars(at)
    return SimpleNamespace(**known | {BATCH: known[BATCH] + number}) if BATCH in known else at


def in_batches(loss: Loss, each: int, loss_over: str) -> Loss:
    """`loss` over one batch of `each` records after the other; the mean of their losses, or the sum
    of their sums by that of their counts. Of metrics it is the mean."""

    def whole(module: nn.Module, batch: Mapping[str, Tensor], *numbers: Any) -> Any:
        count = len(next(iter(batch.values())))
        parts = [
            loss(
                module,
                {n: t[start : start + each] for n, t in batch.items()},
                *(_of_batch(at, i) for at in numbers),
            )
            for i, start in enumerate(range(0, count, each))
        ]
        if loss_over == MEAN and all(isinstance(part, Tensor) for part in parts):
            return torch.stack(parts).mean()
        if loss_over == SUM and all(map(_is_bare, parts)):
            sums, counts = zip(*parts, strict=True)
            return torch.stack(sums).sum() / torch.stack(counts).sum()
        return _with_metrics([collector(loss_over)(part) for part in parts])

    return whole


def _is_bare(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) == 2 and isinstance(part[1], Tensor)


def _with_metrics(named: Sequence[Mapping[str, Tensor]]) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and the metrics of all batches, from the named results of each."""
    if any(set(part) != set(named[0]) for part in named):
        raise UsageError(
            "The loss function returns different metrics for different batches of an update.",
            "Return the same metrics at every call.",
        )
    stacked = {name: torch.stack([part[name] for part in named]) for name in named[0]}
    loss = stacked.pop("loss")
    count = stacked.pop("count", None)
    whole = loss.mean() if count is None else loss.sum() / count.sum()
    return whole, {
        name.removeprefix("metric."): (x if x.is_floating_point() else x.float()).mean(0)
        for name, x in stacked.items()
    }
