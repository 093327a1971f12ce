"""The program of a training step, with one update at its end or several on its way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.capture.first_update import Update
from tallystick.program.capture.lower import type_of_tensor
from tallystick.program.capture.micro import (
    MicroBatches,
    SectionTail,
    carried_buffers,
    carried_nodes,
)
from tallystick.program.capture.model import TorchModel, declare, lower
from tallystick.program.capture.trace import Trace, TraceRequest
from tallystick.program.capture.updates import EmittedUpdates, Groups, update_slots
from tallystick.program.ir import Value
from tallystick.program.tables import Scalar
from tallystick.program.update import (
    EMA,
    WEIGHT,
    Clip,
    Optimizers,
    SlotRule,
    emit_average,
    emit_update,
    optimizer_slots,
    update_scalars,
)


@dataclass(frozen=True)
class BuiltStep:
    """A step in the builder: next state, other outputs, gradients, and the optimizers' needs.

    `updates` are the optimizers' steps in order. `updated` are the parameters after each of
    several, and `before` those that the forward pass changed as the update gets them, of several
    as each gets them: the comparison of the first step reads both. `carried` are slots that each
    micro-batch hands to the next.
    """

    next_state: dict[str, Value]
    outputs: dict[str, Value]
    gradients: dict[str, Value]
    rules: dict[str, SlotRule]
    scalars: dict[str, Scalar]
    trained: set[str]
    updates: tuple[Update, ...]
    updated: dict[str, Value] = field(default_factory=dict)
    before: dict[str, Value] = field(default_factory=dict)
    carried: dict[str, Value] = field(default_factory=dict)

    def averaged(self, b: Builder, ema: EMA) -> BuiltStep:
        """The step with an average of the trained parameters at its end."""
        slots, rules = emit_average(b, sorted(self.trained), self.next_state)
        return replace(
            self,
            next_state=self.next_state | slots,
            rules=self.rules | rules,
            scalars=self.scalars | {WEIGHT: ema.scalar()},
        )


def emit_step(
    b: Builder,
    model: TorchModel,
    request: TraceRequest,
    traced: Trace,
    optimizer: Optimizers | Mapping[str, Optimizers],
    clip: Clip,
    micro: MicroBatches | None = None,
    trains: str = "",
) -> BuiltStep:
    """Write the traced step with its updates into `b`; of a micro-batch, as its section, with the
    folds behind it. `trains` names the update where a job has several, each in its own program."""
    types = {k: type_of_tensor(model.parameters[k]) for k in request.trained}
    if request.groups is not None:
        return _several_updates(b, model, request, request.groups, traced, types)
    assert not isinstance(optimizer, Mapping)
    trained = [k for k in types if f"grad.{k}" in traced.outputs]
    rules = optimizer_slots(optimizer, {k: types[k] for k in trained}, trains)
    state = declare(b, model, rules, request.batch)
    outputs = lower(b, traced, state)
    gradients = {k: outputs.pop(f"grad.{k}") for k in trained}
    carried: dict[str, Value] = {}
    changed_before = {f"param.{k}": outputs.pop(f"param.{k}") for k in sorted(request.changed)}
    if micro is not None and changed_before:
        raise UsageError(
            f"The forward pass changes the parameter {min(request.changed)}: what it would be "
            "after several micro-batches is not settled.",
            "Change it once in a step: with one micro-batch, without accumulation.",
        )
    if micro is not None:
        handed = carried_buffers(model.module, model.outside, state, outputs, micro)
        carried = carried_nodes(b, handed)
        outputs, gradients = _folded(b, micro, outputs | carried, gradients)
    scalars = update_scalars(optimizer, trains)
    values = {name: b.scalar(name) for name in scalars}
    begun = state | changed_before
    changed, metrics = emit_update(b, optimizer, begun, gradients, clip, values, trains)
    next_state = {name: outputs.pop(name, value) for name, value in begun.items()} | changed
    return BuiltStep(
        next_state,
        _with_metrics(outputs, {f"metric.{k}": v for k, v in metrics.items()}),
        {f"grad.{k}": v for k, v in gradients.items()},
        rules,
        scalars,
        set(trained),
        (Update(trains, optimizer, tuple(trained), clip),),
        before={name.replace("param.", "before.", 1): v for name, v in changed_before.items()},
        carried=carried,
    )


def _folded(
    b: Builder,
    micro: MicroBatches,
    outputs: Mapping[str, Value],
    gradients: Mapping[str, Value],
) -> tuple[dict[str, Value], dict[str, Value]]:
    """End the section; the outputs and gradients of the whole batch."""
    named = {k: v for k, v in outputs.items() if not k.startswith("buffer.")}
    tail = SectionTail(b, named | {f"grad.{k}": v for k, v in gradients.items()}, micro)
    found = {k: v for k, v in outputs.items() if k.startswith("buffer.")}
    found["loss"] = tail.total("loss")
    found |= {k: tail.mean(k) for k in named if k not in ("loss", "count")}
    return found, {k: tail.total(f"grad.{k}") for k in gradients}


def _several_updates(
    b: Builder,
    model: TorchModel,
    request: TraceRequest,
    groups: Groups,
    traced: Trace,
    types: Mapping[str, TensorType],
) -> BuiltStep:
    rules = update_slots(groups, traced.updates, types)
    state = declare(b, model, rules, request.batch)
    slots = {name: state[name] for name in rules}
    updates = EmittedUpdates(b, groups, traced.updates, slots, request.changed)
    outputs = lower(b, traced, state, updates)
    next_state = {name: outputs.pop(name, value) for name, value in state.items()}
    gradients = {k: outputs.pop(k) for k in list(outputs) if k.startswith("grad.")}
    return BuiltStep(
        next_state | updates.slots,
        _with_metrics(outputs, updates.metrics),
        gradients,
        rules,
        groups.scalars(),
        {name for _, names in traced.updates for name in names},
        tuple(
            Update(group, groups.optimizers[group], names, groups.clip)
            for group, names in traced.updates
        ),
        updates.updated,
        updates.begun,
    )


def _with_metrics(outputs: Mapping[str, Value], own: Mapping[str, Value]) -> dict[str, Value]:
    """`outputs` and the step's own metrics. Raises UsageError where a metric has such a name."""
    taken = sorted(set(outputs) & set(own))
    if taken:
        name = taken[0].removeprefix("metric.")
        raise UsageError(
            f"The loss function returns a metric named {name}, and clipping reports the norm of "
            "the gradients under this name.",
            "Give the metric another name, or leave clip_norm out.",
        )
    return {**outputs, **own}


def emit_probes(
    b: Builder,
    model: TorchModel,
    request: TraceRequest,
    traced: Trace,
    rules: Mapping[str, SlotRule],
) -> dict[str, Value]:
    """Write a trace of the modules' outputs into `b`, with the updates before them."""
    state = declare(b, model, rules, request.batch)
    updates = None
    if request.groups is not None:
        slots = {name: state[name] for name in rules}
        updates = EmittedUpdates(b, request.groups, traced.updates, slots)
    found = lower(b, traced, state, updates)
    return {k: v for k, v in found.items() if k.startswith("output.")}
