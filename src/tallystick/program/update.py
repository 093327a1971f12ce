"""The optimizer's part of a step: one node per parameter, clipping, beta powers (NUMERICS 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Value
from tallystick.program.optimizers import SGD, Adam, AdamW, Optimizer

LEARNING_RATE = "lr"


def rate_name(group: str = "") -> str:
    """The scalar of a learning rate: `lr`, or `lr.GROUP` where a step has several optimizers."""
    return f"{LEARNING_RATE}.{group}" if group else LEARNING_RATE


def beta_slots(group: str = "") -> tuple[str, str]:
    """The slots of Adam's beta powers, of a group where a step has several optimizers."""
    end = f".{group}" if group else ""
    return f"opt.beta1_power{end}", f"opt.beta2_power{end}"


@dataclass(frozen=True)
class SlotRule:
    """A state slot that the optimizer adds: its type, and the first value of all its elements."""

    type: TensorType
    initial: float


def optimizer_slots(
    optimizer: Optimizer, parameters: Mapping[str, TensorType], group: str = ""
) -> dict[str, SlotRule]:
    """Slots for the trained `parameters` (by name without `param.`), in bytewise name order."""
    slots: dict[str, SlotRule] = {}
    if isinstance(optimizer, SGD):
        if optimizer.momentum != 0:
            slots = {f"opt.buf.{name}": SlotRule(t, 0.0) for name, t in parameters.items()}
    else:
        for name, type_ in parameters.items():
            slots[f"opt.m.{name}"] = SlotRule(type_, 0.0)
            slots[f"opt.v.{name}"] = SlotRule(type_, 0.0)
        for slot in beta_slots(group):
            slots[slot] = SlotRule(TensorType("f64", ()), 1.0)
    return dict(sorted(slots.items()))


def _clip_coefficient(
    b: Builder, gradients: Mapping[str, Value], clip_norm: float
) -> tuple[Value, Value]:
    """NUMERICS 11.6 over the gradients in bytewise parameter-name order (PROGRAM 5.4)."""
    squares = [b.one("tallystick.sum_squares", [gradients[name]]) for name in sorted(gradients)]
    coefficient, norm = b.emit("tallystick.clip_coef", squares, max_norm=float(clip_norm))
    return coefficient, norm


def emit_update(
    b: Builder,
    optimizer: Optimizer,
    state: Mapping[str, Value],
    gradients: Mapping[str, Value],
    clip_norm: float | None,
    lr: Value,
    group: str = "",
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Append the update of every parameter in `gradients`.

    `state` gives the value of each slot, `lr` is the learning rate's scalar. Returns the changed
    slots, and metrics (the gradient norm when clipping).
    """
    metrics: dict[str, Value] = {}
    coefficient: list[Value | None] = [None]
    if clip_norm is not None and gradients:
        clip, metrics["grad_norm"] = _clip_coefficient(b, gradients, clip_norm)
        coefficient = [clip]
    changed: dict[str, Value] = {}
    if isinstance(optimizer, SGD):
        for name in sorted(gradients):
            changed.update(_sgd(b, optimizer, name, state, gradients[name], lr, coefficient))
        return changed, metrics
    slots = beta_slots(group)
    powers = [
        b.one("tallystick.beta_power", [state[slot]], beta=float(beta))
        for slot, beta in zip(slots, optimizer.betas, strict=True)
    ]
    changed.update(zip(slots, powers, strict=True))
    op = "tallystick.adamw_step" if isinstance(optimizer, AdamW) else "tallystick.adam_step"
    for name in sorted(gradients):
        operands = [state[f"param.{name}"], gradients[name]]
        operands += [state[f"opt.m.{name}"], state[f"opt.v.{name}"], lr, *powers]
        shape = b.type_of(operands[0]).shape
        outputs = b.emit(op, [*operands, *coefficient], **_adam_attrs(optimizer, name, shape))
        changed.update(
            zip((f"param.{name}", f"opt.m.{name}", f"opt.v.{name}"), outputs, strict=True)
        )
    return changed, metrics


def _adam_attrs(optimizer: Adam, name: str, shape: tuple[int, ...]) -> dict[str, float]:
    return {
        "beta1": float(optimizer.betas[0]),
        "beta2": float(optimizer.betas[1]),
        "eps": float(optimizer.eps),
        "weight_decay": optimizer.decay_of(name, shape),
    }


def _sgd(
    b: Builder,
    optimizer: SGD,
    name: str,
    state: Mapping[str, Value],
    gradient: Value,
    lr: Value,
    coefficient: list[Value | None],
) -> dict[str, Value]:
    parameter = state[f"param.{name}"]
    buffer = state.get(f"opt.buf.{name}")
    outputs = b.emit(
        "tallystick.sgd_step",
        [parameter, gradient, buffer, lr, *coefficient],
        momentum=float(optimizer.momentum),
        dampening=float(optimizer.dampening),
        weight_decay=optimizer.decay_of(name, b.type_of(parameter).shape),
        nesterov=optimizer.nesterov,
    )
    return dict(zip((f"param.{name}", f"opt.buf.{name}"), outputs, strict=False))
