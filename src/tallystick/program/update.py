"""The optimizer's part of a step: clipping, beta powers, one update per parameter, and a moving
average of the parameters in slots of its own (NUMERICS 11, PROGRAM 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Value
from tallystick.program.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Lion,
    Muon,
    Optimizer,
    ParameterGroups,
    RMSprop,
    TransformersAdafactor,
)
from tallystick.program.tables import Complement, Scalar
from tallystick.program.update_base import LEARNING_RATE as LEARNING_RATE
from tallystick.program.update_base import Family, Given, moments
from tallystick.program.update_base import SlotRule as SlotRule
from tallystick.program.update_rules import (
    ADAGRAD,
    LAMBS,
    LION,
    MUON,
    RMSPROP,
    TORCHS,
    TRANSFORMERS,
)

EMA_PREFIX = "ema."
WEIGHT = "ema"


@dataclass(frozen=True)
class EMA:
    """ema = decay·ema + (1 - decay)·parameter after each step, from the initial parameters on.

    `decay` is a number from 0 to 1 or the name of a table among the job's `schedules`: 0 in the
    first step makes the average begin with the first step's parameters, as torch's AveragedModel.
    """

    decay: float | str = 0.999

    def __post_init__(self) -> None:
        if isinstance(self.decay, str):
            if not self.decay:
                raise UsageError("EMA: decay is an empty name.", "Give a number or a table's name.")
        elif not 0.0 <= self.decay <= 1.0:
            raise UsageError(
                f"EMA: decay is {self.decay}, which is out of range.",
                "Choose a number from 0 to 1.",
            )

    def scalar(self) -> Scalar:
        """The weight of the new parameters, 1 − decay."""
        if isinstance(self.decay, str):
            return Complement(self.decay)
        return 1.0 - float(self.decay)


def emit_average(
    b: Builder, names: list[str], next_state: Mapping[str, Value]
) -> tuple[dict[str, Value], dict[str, SlotRule]]:
    """Append the averages of the parameters `names`; their slots' next values and rules."""
    weight = b.scalar(WEIGHT)
    slots: dict[str, Value] = {}
    rules: dict[str, SlotRule] = {}
    for name in sorted(names):
        new = next_state[f"param.{name}"]
        slot, type_ = f"{EMA_PREFIX}{name}", b.type_of(new)
        rules[slot] = SlotRule(type_, 0.0, copies=f"param.{name}")
        slots[slot] = Given(b, {}, {}, None, ()).towards(b.state(slot, type_), new, weight)
    return slots, rules


Optimizers = Optimizer | ParameterGroups


@dataclass(frozen=True)
class Clip:
    """What happens to the gradients before an update: each element to [-value, value], then all
    by their norm. `report` gives the norm as a metric without clipping too."""

    norm: float | None = None
    value: float | None = None
    report: bool = False


def scalar_name(name: str, group: str = "") -> str:
    """A scalar of an update: `lr`, or `lr.GROUP` where a step has several optimizers."""
    return f"{name}.{group}" if group else name


def beta_slots(group: str = "") -> tuple[str, str]:
    """The slots of Adam's beta powers, of a group where a step has several optimizers."""
    end = f".{group}" if group else ""
    return f"opt.beta1_power{end}", f"opt.beta2_power{end}"


# -- SGD, Adam and AdamW: one node per parameter (NUMERICS 11) -------------------------------------
def adam_attrs(optimizer: Adam, name: str, shape: tuple[int, ...]) -> dict[str, float]:
    return {
        "beta1": float(optimizer.betas[0]),
        "beta2": float(optimizer.betas[1]),
        "eps": float(optimizer.eps),
        "weight_decay": optimizer.decay_of(name, shape),
    }


def _adam(optimizer: Adam, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    op = "tallystick.adamw_step" if isinstance(optimizer, AdamW) else "tallystick.adam_step"
    operands = [given.parameter(name), gradient, given.slot("m", name), given.slot("v", name)]
    operands += [given.scalars[LEARNING_RATE], *given.powers]
    attrs = adam_attrs(optimizer, name, given.shape(name))
    outputs = given.b.emit(op, [*operands, given.coefficient], **attrs)
    return dict(zip((f"param.{name}", f"opt.m.{name}", f"opt.v.{name}"), outputs, strict=True))


def sgd_update(optimizer: SGD, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    outputs = given.b.emit(
        "tallystick.sgd_step",
        [
            given.parameter(name),
            gradient,
            given.state.get(f"opt.buf.{name}"),
            given.scalars[LEARNING_RATE],
            given.coefficient,
        ],
        momentum=float(optimizer.momentum),
        dampening=float(optimizer.dampening),
        weight_decay=optimizer.decay_of(name, given.shape(name)),
        nesterov=optimizer.nesterov,
    )
    return dict(zip((f"param.{name}", f"opt.buf.{name}"), outputs, strict=False))


def _sgd_slots(optimizer: SGD, name: str, type_: TensorType) -> dict[str, SlotRule]:
    return moments(type_, name, "buf") if optimizer.momentum != 0 else {}


_ADAM = Family(
    lambda o, name, type_: moments(type_, name, "m", "v"),
    lambda *given: _adam(*given),
    powers=lambda _: True,
)
_FAMILIES: dict[type, Family] = {
    SGD: Family(_sgd_slots, lambda *given: sgd_update(*given)),
    Adam: _ADAM,
    AdamW: _ADAM,
    RMSprop: RMSPROP,
    Adagrad: ADAGRAD,
    Lion: LION,
    LAMB: LAMBS,
    Adafactor: TORCHS,
    TransformersAdafactor: TRANSFORMERS,
    Muon: MUON,
}


def family_of(optimizer: Optimizer) -> Family:
    """The rule of an optimizer."""
    return _FAMILIES[type(optimizer)]


# -- all parameters of a step ----------------------------------------------------------------------
def parts_of(
    optimizer: Optimizers, types: Mapping[str, TensorType], group: str = ""
) -> list[tuple[str, Optimizer, tuple[str, ...]]]:
    """The groups of an update with their optimizers and parameters, in the order of the nodes."""
    if not isinstance(optimizer, ParameterGroups):
        return [(group, optimizer, tuple(sorted(types)))]
    assigned = optimizer.assigned(types)
    return [
        (scalar_name(name, group), g.optimizer, assigned[name])
        for name, g in optimizer.groups.items()
    ]


def optimizer_slots(
    optimizer: Optimizers, parameters: Mapping[str, TensorType], group: str = ""
) -> dict[str, SlotRule]:
    """Slots for the trained `parameters` (by name without `param.`), in bytewise name order."""
    slots: dict[str, SlotRule] = {}
    for own, one, names in parts_of(optimizer, parameters, group):
        family = family_of(one)
        for name in names:
            slots |= family.slots(one, name, parameters[name])
        if family.powers(one):
            slots |= {slot: SlotRule(TensorType("f64", ()), 1.0) for slot in beta_slots(own)}
    return dict(sorted(slots.items()))


def update_scalars(optimizer: Optimizers, group: str = "") -> dict[str, Scalar]:
    """The per-step scalars of an update, each with its number, its table's name or its rule."""
    parts = [(group, optimizer)]
    if isinstance(optimizer, ParameterGroups):
        parts = [(scalar_name(n, group), g.optimizer) for n, g in optimizer.groups.items()]
    found: dict[str, Scalar] = {}
    for own, one in parts:
        assert not isinstance(one, ParameterGroups)
        found |= {scalar_name(name, own): s for name, s in family_of(one).scalars(one).items()}
    return found


def clip_coefficient(
    b: Builder, gradients: Mapping[str, Value], clip_norm: float
) -> tuple[Value, Value]:
    """NUMERICS 11.6 over the gradients in bytewise parameter-name order (PROGRAM 5.4)."""
    squares = [b.one("tallystick.sum_squares", [gradients[name]]) for name in sorted(gradients)]
    coefficient, norm = b.emit("tallystick.clip_coef", squares, max_norm=float(clip_norm))
    return coefficient, norm


def emit_update(
    b: Builder,
    optimizer: Optimizers,
    state: Mapping[str, Value],
    gradients: Mapping[str, Value],
    clip: Clip,
    scalars: Mapping[str, Value],
    group: str = "",
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Append the update of every parameter in `gradients`.

    `state` gives the value of each slot, `scalars` those of `update_scalars`. Returns the changed
    slots, and metrics (the norm of the gradients, with clipping by it or if it is reported).
    """
    metrics: dict[str, Value] = {}
    if clip.value is not None:
        limits = {"min": -float(clip.value), "max": float(clip.value)}
        gradients = {n: b.one("aten.clamp", [gradients[n]], **limits) for n in sorted(gradients)}
    coefficient: Value | None = None
    if gradients and clip.norm is not None:
        coefficient, metrics["grad_norm"] = clip_coefficient(b, gradients, clip.norm)
    elif gradients and clip.report:
        _, metrics["grad_norm"] = clip_coefficient(b, gradients, 1.0)
    changed: dict[str, Value] = {}
    types = {name: b.type_of(value) for name, value in gradients.items()}
    for own, one, names in parts_of(optimizer, types, group):
        family, powers, slots = family_of(one), [], beta_slots(own)
        if family.powers(one) and slots[0] in state:
            betas = one.betas  # type: ignore[union-attr]
            powers = [
                b.one("tallystick.beta_power", [state[slot]], beta=float(beta))
                for slot, beta in zip(slots, betas, strict=True)
            ]
            changed.update(zip(slots, powers, strict=True))
        theirs = {name: scalars[scalar_name(name, own)] for name in family.scalars(one)}
        given = Given(b, state, theirs, coefficient, powers)
        for name in names:
            changed |= family.emit(one, name, gradients[name], given)
    return changed, metrics
