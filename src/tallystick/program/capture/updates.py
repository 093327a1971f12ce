"""Several optimizers in one step, each for parameters of its own: a GAN (PROGRAM 5.16).

The step function gets `update`. A call `update("discriminator", loss)` stands for the loss's
backward pass and that optimizer's step: what the function computes afterwards sees the new
parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.capture import custom_ops
from tallystick.program.capture.guard import Placed
from tallystick.program.capture.kept_after import refuse_untrained
from tallystick.program.capture.randomness import Draws
from tallystick.program.ir import Value
from tallystick.program.optimizers import ParameterGroups
from tallystick.program.tables import Scalar
from tallystick.program.update import (
    Clip,
    Optimizers,
    SlotRule,
    emit_update,
    optimizer_slots,
    update_scalars,
)

Update = Callable[[str, Tensor], None]
StepFunction = Callable[[nn.Module, dict[str, Tensor], Update], Any]


def belongs(parameter: str, group: str) -> bool:
    """Whether the parameter is of the group: a submodule's path, or the parameter's own name."""
    return parameter == group or parameter.startswith(f"{group}.")


@dataclass(frozen=True)
class Groups:
    """The optimizers by group, and the trained parameters of each, in bytewise name order.

    A group is the path of a submodule, or the name of a parameter. `clip` is for each update.
    """

    optimizers: Mapping[str, Optimizers]
    members: Mapping[str, tuple[str, ...]]
    clip: Clip

    @classmethod
    def of(
        cls,
        optimizers: Mapping[str, Optimizers],
        trainable: Sequence[str],
        clip: Clip,
    ) -> Groups:
        """Raises UsageError unless each trainable parameter belongs to exactly one optimizer."""
        members = {
            group: tuple(sorted(n for n in trainable if belongs(n, group))) for group in optimizers
        }
        for group, names in members.items():
            if isinstance(optimizers[group], ParameterGroups):
                raise UsageError(
                    f"The optimizer {group!r} has parameter groups, which a step with several "
                    "optimizers does not support.",
                    "Make each group a separate entry in the dict of optimizers.",
                )
            if not names:
                raise UsageError(
                    f"No parameter that requires a gradient belongs to the optimizer {group!r}.",
                    "Name a submodule's path or a parameter of the module.",
                )
        for name in trainable:
            owners = [group for group, names in members.items() if name in names]
            if len(owners) != 1:
                raise UsageError(
                    f"The parameter {name} belongs to "
                    + (f"several optimizers: {', '.join(owners)}." if owners else "no optimizer."),
                    "Give each parameter one optimizer, or freeze it (requires_grad_(False)).",
                )
        return cls(optimizers, members, clip)

    def scalars(self) -> dict[str, Scalar]:
        """The per-step scalars of all optimizers."""
        found: dict[str, Scalar] = {}
        for group, optimizer in self.optimizers.items():
            found |= update_scalars(optimizer, group)
        return found

    def names(self, group: str) -> tuple[str, ...]:
        """The parameters of a group. Raises UsageError for another name."""
        if group not in self.members:
            raise UsageError(
                f"update was called for {group!r}, which is not an optimizer of this capture.",
                f"Use one of {', '.join(self.members)}.",
            )
        return self.members[group]


def refuse_never_updated(groups: Groups, done: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Raises UsageError where the updates `done` of a step, or of all, leave a group out."""
    updated = {group for group, _ in done}
    for group in groups.members:
        if group not in updated:
            raise UsageError(
                f"The step never updates {group}.",
                f"Call update({group!r}, loss) in it, or freeze these parameters.",
            )


def without_updates(step: StepFunction) -> Callable[[nn.Module, dict[str, Tensor]], Any]:
    """The step with an `update` that does nothing, as evaluation runs it."""
    return lambda module, batch: step(module, batch, lambda group, loss: None)


class Updates(ABC):
    """The `update` of a step function: gradients, new values, and their places in the module."""

    def __init__(self, groups: Groups, parameters: Mapping[str, Tensor]) -> None:
        self.groups, self.parameters = groups, parameters
        # The group of each update, and the parameters that it changed.
        self.done: list[tuple[str, tuple[str, ...]]] = []

    def __call__(self, group: str, loss: Tensor) -> None:
        names = self.groups.names(group)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise UsageError(
                f"The loss of update {len(self.done)} ({group}) is not a scalar tensor.",
                "Reduce it with .mean() or .sum().",
            )
        found: Sequence[Tensor | None] = [None]
        if loss.requires_grad:
            wanted = [self.parameters[n] for n in names]
            # The graph is kept: two losses may share parts of it.
            found = torch.autograd.grad(loss, wanted, allow_unused=True, retain_graph=True)
        gradients = {n: g for n, g in zip(names, found, strict=False) if g is not None}
        if not gradients:
            raise UsageError(
                f"The loss of update {len(self.done)} depends on no parameter of {group}.",
                "Compute it from their outputs, without detach() and no_grad().",
            )
        with torch.no_grad():
            for name, value in self.stepped(gradients).items():
                self.parameters[name].copy_(value)
        self.done.append((group, tuple(gradients)))

    @abstractmethod
    def stepped(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parameters after the step of the optimizer."""


class TracedUpdates(Updates):
    """One node of the trace for each update; the gradients are outputs of the trace."""

    def __init__(
        self, groups: Groups, parameters: Mapping[str, Tensor], placed: Placed, draws: Draws
    ) -> None:
        super().__init__(groups, parameters)
        self.placed, self.draws = placed, draws
        self.untrained: Sequence[Tensor] = ()  # tensors outside that no update may train
        self.outputs: dict[str, Tensor] = {}

    def __call__(self, group: str, loss: Tensor) -> None:
        self.placed.check(self.parameters)
        if isinstance(loss, Tensor):
            refuse_untrained(loss, self.untrained)
        self.draws.in_backward = True
        super().__call__(group, loss)
        self.draws.in_backward = False
        self.placed = Placed(self.parameters, self.placed.parts, self.placed.expected)

    def stepped(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        number = len(self.done)
        self.outputs |= {f"grad.{number}.{name}": g for name, g in gradients.items()}
        before = [self.parameters[name] for name in gradients]
        after = custom_ops.update(before, list(gradients.values()), number)
        return dict(zip(gradients, after, strict=True))

    def results(self) -> dict[str, Tensor]:
        """The gradients of every update, and the parameters after the last one."""
        return self.outputs | {f"param.{k}": v for k, v in self.parameters.items()}


def update_slots(
    groups: Groups, done: Sequence[tuple[str, tuple[str, ...]]], types: Mapping[str, TensorType]
) -> dict[str, SlotRule]:
    """The optimizers' slots for the parameters (of these `types`) that some update changes."""
    slots: dict[str, SlotRule] = {}
    for group, optimizer in groups.optimizers.items():
        changed = sorted({name for g, names in done if g == group for name in names})
        slots |= optimizer_slots(optimizer, {n: types[n] for n in changed}, group)
    return dict(sorted(slots.items()))


class EmittedUpdates:
    """Writes the update nodes of a trace into a program, in their order.

    `slots` are the optimizers' own, after the updates so far. `updated` has the parameters after
    each one, and `begun` those of `changed`, which the step function changes in place, as it gets
    them: the comparison of the first step reads both.
    """

    def __init__(
        self,
        builder: Builder,
        groups: Groups,
        done: Sequence[tuple[str, tuple[str, ...]]],
        slots: Mapping[str, Value],
        changed: Collection[str] = (),
    ) -> None:
        self.b, self.groups, self.done, self.changed = builder, groups, done, changed
        self.slots = dict(slots)
        self.scalars = {name: builder.scalar(name) for name in groups.scalars()}
        self.metrics: dict[str, Value] = {}
        self.updated: dict[str, Value] = {}
        self.begun: dict[str, Value] = {}

    def __call__(
        self, number: int, parameters: Sequence[Value], gradients: Sequence[Value]
    ) -> list[Value]:
        """Update `number`: the parameters' new values."""
        group, names = self.done[number]
        given = dict(zip(names, parameters, strict=True))
        state = self.slots | {f"param.{n}": v for n, v in given.items()}
        self.begun |= {f"begun.{number}.{n}": given[n] for n in names if n in self.changed}
        changed, metrics = emit_update(
            self.b,
            self.groups.optimizers[group],
            state,
            dict(zip(names, gradients, strict=True)),
            self.groups.clip,
            self.scalars,
            group,
        )
        self.slots |= {name: v for name, v in changed.items() if name in self.slots}
        self.metrics |= {f"metric.{name}.{number}": v for name, v in metrics.items()}
        new = [changed[f"param.{name}"] for name in names]
        self.updated |= {f"updated.{number}.{n}": v for n, v in zip(names, new, strict=True)}
        return new
