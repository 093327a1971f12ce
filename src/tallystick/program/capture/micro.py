"""A step over micro-batches: the section that was traced, and its tail (PROGRAM 6.10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD, MOST_PARTS
from tallystick.program.build import Builder
from tallystick.program.capture.batch import Batch
from tallystick.program.capture.model import loss_and_metrics
from tallystick.program.ir import Value

MEAN, SUM = "mean", "sum"


@dataclass(frozen=True)
class MicroBatches:
    """How a step is made of `parts` micro-batches: what the loss function returns, and so how
    losses and gradients are folded."""

    parts: int
    loss_over: str = MEAN

    @property
    def collect(self) -> Callable[[Any], dict[str, Tensor]]:
        """What the loss function returns, as named tensors."""
        return collector(self.loss_over)

    def share(self, batch: Mapping[str, Tensor]) -> Batch:
        """The types of one micro-batch of this whole one. Raises UsageError where the number does
        not divide it."""
        found = Batch()
        for name, tensor in batch.items():
            if not tensor.dim() or tensor.shape[0] % self.parts or not tensor.shape[0]:
                size = f"has {tensor.shape[0]} records" if tensor.dim() else "has no first axis"
                raise UsageError(
                    f"The batch tensor {name!r} {size}, which {self.parts} micro-batches do not "
                    "divide.",
                    "Choose a number of micro-batches that divides the batch.",
                )
            shape = (tensor.shape[0] // self.parts, *tensor.shape[1:])
            found[name] = torch.empty(shape, dtype=tensor.dtype, device="meta")
        return found


def micro_batches_of(parts: int | None, loss_over: str, has_updates: bool) -> MicroBatches | None:
    """The caller's choice; None where there are none. Raises UsageError for a senseless one."""
    if loss_over not in (MEAN, SUM):
        raise UsageError(f"loss_over is {loss_over!r}.", "Use 'mean' or 'sum'.")
    if parts is None:
        if loss_over != MEAN:
            raise UsageError(
                "loss_over='sum' needs micro_batches.",
                "Pass micro_batches as well. It can be 1.",
            )
        return None
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= MOST_PARTS:
        raise UsageError(
            f"micro_batches is {parts!r}.", f"Give a whole number from 1 to {MOST_PARTS}, or None."
        )
    if has_updates:
        raise UsageError(
            "A step with several optimizers cannot have micro-batches, because it updates "
            "parameters in between.",
            "Leave micro_batches out, or train with one optimizer.",
        )
    return MicroBatches(parts, loss_over)


def collector(loss_over: str) -> Callable[[Any], dict[str, Tensor]]:
    """What turns a loss function's result into named tensors."""
    return summed_loss if loss_over == SUM else loss_and_metrics


def summed_loss(returned: Any) -> dict[str, Tensor]:
    """`(sum, count)`, or `(sum, count, {name: tensor})`, as named outputs."""
    known = isinstance(returned, tuple) and len(returned) in (2, 3)
    count = returned[1] if known else None
    if isinstance(count, (int, float)) and not isinstance(count, bool):
        count = torch.full((), float(count), dtype=torch.float32)
    if not isinstance(count, Tensor) or count.numel() != 1 or count.is_complex():
        raise UsageError(
            "With loss_over='sum' the loss function must return (sum, count), or (sum, count, "
            "{name: tensor}).",
            "Return the sum over the micro-batch, and the number that it is to be divided by.",
        )
    metrics = returned[2] if len(returned) == 3 else {}
    named = loss_and_metrics((returned[0], metrics))
    return named | {"count": count.detach().reshape(()).to(torch.float32)}


def mean_of_sums(returned: Any) -> dict[str, Tensor]:
    """`summed_loss` of a whole batch, whose loss is the quotient."""
    named = summed_loss(returned)
    count = named.pop("count")
    return named | {"loss": named["loss"] / count}


def carried_buffers(
    module: nn.Module,
    outside: Collection[str],
    state: Mapping[str, Value],
    outputs: Mapping[str, Value],
    micro: MicroBatches,
) -> dict[str, Value]:
    """The changed buffers, which each micro-batch hands to the next one.

    `outside` are those that code keeps outside of the module. Raises UsageError for another one
    that batch normalisation's forward does not own.
    """
    changed = {
        name: value
        for name, value in outputs.items()
        if name.startswith("buffer.") and value != state[name]
    }
    own = {
        f"buffer.{path}.{name}" if path else f"buffer.{name}"
        for path, child in module.named_modules()
        if isinstance(child, _BatchNorm)
        for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    own |= {f"buffer.{name}" for name in outside}
    others = sorted(set(changed) - own)
    if others and micro.parts > 1:
        raise UsageError(
            f"The forward pass changes {others[0].replace('buffer.', 'the buffer ', 1)}, which is "
            "no running statistic of batch normalisation: what it would be after several "
            "micro-batches is not settled.",
            "Use one micro-batch (micro_batches=1), or keep the buffer as it is.",
        )
    return changed


class SectionTail:
    """Ends a builder's section, and folds the section's values.

    `named` are the section's values by name: `loss`, `count` where it is summed, metrics,
    gradients.
    """

    def __init__(self, b: Builder, named: Mapping[str, Value], micro: MicroBatches) -> None:
        self._b, self._sums = b, micro.loss_over == SUM
        made = {name: self._as_node(name, value) for name, value in named.items()}
        b.end_section()
        self._made = made
        self._count = self.fold_value("count", mean=False) if self._sums else None

    def total(self, name: str) -> Value:
        """The loss, or a gradient, of the whole batch."""
        folded = self.fold_value(name, mean=not self._sums)
        if self._count is None:
            return folded
        return self._b.one("aten.div.Tensor", [folded, self._count])

    def mean(self, name: str) -> Value:
        """A metric of the whole batch: the mean over its micro-batches."""
        return self.fold_value(name, mean=True)

    def fold_value(self, name: str, mean: bool) -> Value:
        return self._b.one(FOLD, [self._made[name]], mean=mean)

    def _as_node(self, name: str, value: Value) -> Value:
        """A value of f32 that a node makes, as a fold reads it."""
        type_ = self._b.type_of(value)
        if type_.dtype in ("i32", "u8"):
            value = self._b.one("aten._to_copy", [value], dtype="i64")
        if type_.dtype in ("i32", "u8", "i64", "bool"):
            return self._b.one("aten._to_copy", [value], dtype="f32")
        if type_.dtype != "f32":
            raise UsageError(
                f"{name} is {type_}, but micro-batches can only fold float32 numbers.",
                "Convert it with .float().",
            )
        return self._b.one("aten.view", [value], size=type_.shape) if value.is_input else value


def carried_nodes(b: Builder, carried: Mapping[str, Value]) -> dict[str, Value]:
    """Values to carry, each made by a node of the section."""
    return {
        name: b.one("aten.view", [value], size=b.type_of(value).shape) if value.is_input else value
        for name, value in carried.items()
    }


def cut(arrays: Mapping[str, Any], parts: int) -> Sequence[dict[str, Any]]:
    """A whole batch as its micro-batches: consecutive records."""
    size = {name: len(array) // parts for name, array in arrays.items()}
    return [
        {name: array[v * size[name] : (v + 1) * size[name]] for name, array in arrays.items()}
        for v in range(parts)
    ]
