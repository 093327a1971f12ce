"""Captures that a job completes when it says how many steps there are: of a loss that keeps Python
state that decides, and of a loop that accumulates.

No one program is all steps of such a loss. But a job of N steps calls it once for each micro-batch
of each of them, in order. So the steps are traced one by one when a job says how many there are
(PROGRAM 5.25), from the state that Python has then. A loop that accumulates has groups of batches,
of which an epoch's last one may be smaller, and may end with a smaller batch (PROGRAM 6.10).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.commit.timetable import MOST_PROGRAMS
from tallystick.errors import MovingStateError, UsageError
from tallystick.program.capture.api import CapturedStep, Preparation, prepare
from tallystick.program.capture.batch import meta_batch
from tallystick.program.capture.by_step import StepPrograms
from tallystick.program.capture.first_calls import refuse_other_calls
from tallystick.program.capture.known import KnownSteps
from tallystick.program.capture.micro import MEAN, SUM, collector
from tallystick.program.capture.model import TorchModel
from tallystick.program.capture.walked import walked_by_step
from tallystick.program.update import EMA, Clip

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


def capture_or_later(
    module: nn.Module,
    loss: Any,
    batch: Mapping[str, Any],
    optimizer: Any,
    *,
    clip: Clip,
    ema: EMA | None,
    outputs_grads: bool,
    contract: str,
    mode: str,
    micro_batches: int | None,
    loss_over: str,
    trains: str | None,
) -> CapturedStep | Later:
    """The captured step; or, where Python state moves from call to call, what settles its programs
    for so many steps. Arguments and errors as of `capture`."""
    given: dict[str, Any] = {
        "clip": clip,
        "ema": ema,
        "outputs_grads": outputs_grads,
        "contract": contract,
        "mode": mode,
        "trains": trains,
    }
    tried = prepare(
        module, loss, batch, optimizer, micro_batches=micro_batches, loss_over=loss_over, **given
    )
    try:
        return tried.step(*tried.traced(tried.request()))
    except MovingStateError as error:
        refusal = error
    other: UsageError | None = None
    try:
        refuse_other_calls(tried.firsts, tried.collect)
    except UsageError as error:  # the walk may say where
        other = error
    whole = loss
    if micro_batches is not None:
        # The calls differ, so they are no repetitions of one text.
        size = len(next(iter(meta_batch(batch).values())))
        whole = in_batches(loss, size // micro_batches, loss_over)
    prepared = prepare(module, whole, batch, optimizer, **given)
    return Later(prepared, loss, refusal, _look(prepared.model), other)


@dataclass(frozen=True)
class Later:
    """A step that is settled when a job says how many there are. `refusal` says why not before.

    `prepared` is a whole step, whose `loss` is the author's. `before` is a look at the module.
    `other` is why the first call is another one when it is made again.
    """

    prepared: Preparation
    loss: Any
    refusal: MovingStateError
    before: Any
    other: UsageError | None = None

    @property
    def batch_size(self) -> int:
        """The records of a whole step."""
        return next((t.shape[0] for t in self.prepared.batch.values()), 1)

    def settled(self, steps: int, short: Later | None = None, epoch: int = 0) -> StepPrograms:
        """The programs of `steps` training steps from the state that Python has now; every
        `epoch`-th is that of `short`, if given.

        Raises UsageError where the module has changed since the capture, and where the steps cannot
        be traced one by one.
        """
        if _look(self.prepared.model) != self.before:
            raise UsageError(
                "The module has changed since its capture. Its loss keeps state in Python, so its "
                "steps are traced only when the job is saved.",
                "Save the job before you train the module or change its mode.",
            )
        forms = [self.prepared]
        if short is not None:
            if short.loss is not self.loss or short.prepared.module is not self.prepared.module:
                raise UsageError(
                    "The short step was captured with another loss or another module.",
                    "Capture both with the same function, so that they share its state.",
                )
            forms.append(short.prepared)
        ends = epoch if short is not None else 0
        found = walked_by_step(
            forms,
            KnownSteps(steps, {}, told=False),
            form_of=lambda step: 1 if ends and (step + 1) % ends == 0 else 0,
            most=MOST_PROGRAMS,
            instead_of=self.refusal,
        )
        if self.other is not None:
            raise self.other
        return found


def _look(model: TorchModel) -> Any:
    """What a capture takes of the module: its tensors and their values, and its modes."""
    module = model.module
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    same = all(own.get(n) is t for n, t in (model.parameters | model.buffers).items())
    weights = model.weights() or {}
    values = {n: hashlib.sha256(a.tobytes()).digest() for n, a in weights.items()}
    return same, sorted(own), values, [child.training for child in module.modules()]
