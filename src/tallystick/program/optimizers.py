"""Optimizer descriptions: a job's update rule, or one for each group of parameters, which has rates
and options of its own (NUMERICS 11, PROGRAM 8). Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.check import check_name

# Substrings of parameter names, or a rule over (name, shape).
NoDecay = tuple[str, ...] | Callable[[str, tuple[int, ...]], bool]
LearningRate = float | str


def _decay(
    weight_decay: float, no_decay: NoDecay, min_ndim: int, name: str, shape: tuple[int, ...]
) -> float:
    spared = no_decay(name, shape) if callable(no_decay) else any(part in name for part in no_decay)
    return 0.0 if spared or len(shape) < min_ndim else float(weight_decay)


def _check(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 <= value < float("inf"):
            raise UsageError(f"Optimizer: {name} must be finite and not negative, got {value!r}.")


class Decays:
    """What has a weight decay that spares some parameters; fields as in `SGD`."""

    weight_decay: float
    no_decay: NoDecay
    decay_min_ndim: int

    def decay_of(self, name: str, shape: tuple[int, ...]) -> float:
        """Weight decay of parameter `name` of `shape`."""
        return _decay(self.weight_decay, self.no_decay, self.decay_min_ndim, name, shape)


def _check_rate(lr: LearningRate) -> None:
    if not isinstance(lr, str):
        _check(lr=float(lr))
    elif not lr:
        raise UsageError(
            "Optimizer: lr is an empty name.",
            "Give a number, or the name of a table among the job's `schedules`.",
        )


def _below_one(kind: str, **values: float) -> None:
    for name, value in values.items():
        if value >= 1:
            raise UsageError(f"{kind}: {name} must be below 1.", "Choose a value such as 0.9.")


@dataclass(frozen=True)
class SGD(Decays):
    """Stochastic gradient descent (NUMERICS 11.4).

    `lr` is a number or the name of a per-step table in the job. `no_decay` names parameters
    without weight decay by substrings, or decides by (name, shape); parameters with fewer than
    `decay_min_ndim` axes have none either.
    """

    lr: LearningRate
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check(momentum=self.momentum, weight_decay=self.weight_decay)
        if self.nesterov and (self.momentum <= 0 or self.dampening != 0):
            raise UsageError(
                "SGD: nesterov needs a momentum and no dampening.",
                "Set momentum above 0 and dampening to 0, or leave nesterov out.",
            )


@dataclass(frozen=True)
class Adam(Decays):
    """Adam with decay as part of the gradient (NUMERICS 11.3); fields as in `SGD`."""

    lr: LearningRate
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check(beta1=self.betas[0], beta2=self.betas[1], eps=self.eps)
        _check(weight_decay=self.weight_decay)
        if max(self.betas) >= 1:
            raise UsageError("Adam: betas must be below 1.", "Choose betas such as (0.9, 0.999).")


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (NUMERICS 11.2); fields as in `SGD`."""

    weight_decay: float = 0.01


@dataclass(frozen=True)
class RMSprop(Decays):
    """RMSprop as torch has it (PROGRAM 8.3); decay is part of the gradient, fields as in `SGD`."""

    lr: LearningRate = 0.01
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check(alpha=self.alpha, eps=self.eps, weight_decay=self.weight_decay)
        _check(momentum=self.momentum)
        _below_one("RMSprop", alpha=self.alpha)


@dataclass(frozen=True)
class Adagrad(Decays):
    """Adagrad as torch has it (PROGRAM 8.4); decay is part of the gradient, fields as in `SGD`.

    With `lr_decay` the job derives a table of rates, lr/(1 + step·lr_decay).
    """

    lr: LearningRate = 0.01
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check(lr_decay=self.lr_decay, weight_decay=self.weight_decay, eps=self.eps)
        _check(initial_accumulator_value=self.initial_accumulator_value)


@dataclass(frozen=True)
class Lion(Decays):
    """Lion (arXiv:2302.06675, PROGRAM 8.5): a step of lr along the sign of an averaged gradient.

    Decay is decoupled; fields as in `SGD`.
    """

    lr: LearningRate = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check(beta1=self.betas[0], beta2=self.betas[1], weight_decay=self.weight_decay)
        _below_one("Lion", betas=max(self.betas))


@dataclass(frozen=True)
class LAMB(Decays):
    """LAMB (arXiv:1904.00962, PROGRAM 8.6): Adam's direction, scaled by a trust ratio.

    The ratio is that of the parameter's norm to the direction's, 1 where one of them is 0, and at
    most `max_trust` if that is given. Without `always_adapt` a parameter without decay has the
    ratio 1. Decay is decoupled; fields as in `SGD`.
    """

    lr: LearningRate = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01
    bias_correction: bool = True
    max_trust: float | None = None
    always_adapt: bool = True
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check(beta1=self.betas[0], beta2=self.betas[1], eps=self.eps)
        _check(weight_decay=self.weight_decay, max_trust=self.max_trust or 0.0)
        _below_one("LAMB", betas=max(self.betas))


@dataclass(frozen=True)
class Adafactor(Decays):
    """Adafactor as torch.optim has it (PROGRAM 8.7); `d` clips the update's root mean square.

    `eps[0]` None is float32's own, 2⁻²³. The rate is min(lr, 1/√step) times the parameter's root
    mean square, which counts as at least `eps[1]`. Decay is decoupled; fields as in `SGD`.
    """

    lr: LearningRate = 0.01
    beta2_decay: float = -0.8
    eps: tuple[float | None, float] = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check(minus_beta2_decay=-self.beta2_decay, eps1=self.eps[0] or 0.0, eps2=self.eps[1])
        _check(d=self.d, weight_decay=self.weight_decay)
        if self.d <= 0:
            raise UsageError("Adafactor: d must be above 0.", "Leave it at 1.")


@dataclass(frozen=True)
class TransformersAdafactor(Decays):
    """Adafactor as the package transformers has it (PROGRAM 8.8), with its options and defaults.

    With `relative_step` the job derives the rates, and `lr` is None. Fields as in `SGD`.
    """

    lr: LearningRate | None = None
    eps: tuple[float, float] = (1e-30, 1e-3)
    clip_threshold: float = 1.0
    decay_rate: float = -0.8
    beta1: float | None = None
    weight_decay: float = 0.0
    scale_parameter: bool = True
    relative_step: bool = True
    warmup_init: bool = False
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        if (self.lr is None) != self.relative_step:
            raise UsageError(
                "TransformersAdafactor: relative_step and lr cannot be used together, since both "
                "give the rate.",
                "Pass lr with relative_step=False, or leave lr out.",
            )
        if self.lr is not None:
            _check_rate(self.lr)
        if self.warmup_init and not self.relative_step:
            raise UsageError(
                "TransformersAdafactor: warmup_init needs relative_step.",
                "Leave warmup_init out, or set relative_step=True.",
            )
        _check(minus_decay_rate=-self.decay_rate, eps1=self.eps[0], eps2=self.eps[1])
        _check(weight_decay=self.weight_decay, beta1=self.beta1 or 0.0)
        _check(clip_threshold=self.clip_threshold)
        if self.clip_threshold <= 0:
            raise UsageError(
                "TransformersAdafactor: clip_threshold must be above 0.", "Leave it at 1."
            )
        _below_one("TransformersAdafactor", beta1=self.beta1 or 0.0)


@dataclass(frozen=True)
class Muon(Decays):
    """Muon as torch.optim has it, but in float32 where torch takes bfloat16 (PROGRAM 8.9).

    For parameters of two axes: others get another optimizer by `ParameterGroups`. `adjust_lr`
    scales the rate by the shape: "original" by √max(1, rows/columns), "match_rms_adamw" by
    0.2·√max(rows, columns). Decay is decoupled; fields as in `SGD`.
    """

    lr: LearningRate = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr: str = "original"
    no_decay: NoDecay = ()
    decay_min_ndim: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.lr)
        _check(weight_decay=self.weight_decay, momentum=self.momentum, eps=self.eps)
        _below_one("Muon", momentum=self.momentum)
        _check(**{f"ns_coefficients[{i}]": abs(v) for i, v in enumerate(self.ns_coefficients)})
        if len(self.ns_coefficients) != 3 or not 1 <= self.ns_steps < 100:
            raise UsageError(
                "Muon: ns_coefficients or ns_steps is out of range.",
                "Pass three ns_coefficients, and ns_steps from 1 to 99.",
            )
        if self.adjust_lr not in ("original", "match_rms_adamw"):
            raise UsageError(
                f"Muon: adjust_lr is {self.adjust_lr!r}.",
                "Use original or match_rms_adamw.",
            )


Optimizer = (
    SGD | Adam | AdamW | RMSprop | Adagrad | Lion | LAMB | Adafactor | TransformersAdafactor | Muon
)
KINDS = (
    SGD, Adam, AdamW, RMSprop, Adagrad, Lion, LAMB, Adafactor, TransformersAdafactor, Muon,
)  # fmt: skip


# Names of parameters or of submodules, or a rule over (name, shape); None: all the others.
Members = tuple[str, ...] | Callable[[str, tuple[int, ...]], bool] | None


@dataclass(frozen=True)
class ParameterGroup:
    """An optimizer and its parameters: names of parameters or submodules, a rule over (name,
    shape), or None for all that no other group has."""

    optimizer: Optimizer
    members: Members = None

    def has(self, name: str, shape: tuple[int, ...]) -> bool:
        if self.members is None:
            return False
        if callable(self.members):
            return bool(self.members(name, shape))
        return any(name == m or name.startswith(f"{m}.") for m in self.members)


class ParameterGroups:
    """Optimizers by the names of their groups, all of which step at once (PROGRAM 5.17).

    The learning rate of a group is the scalar `lr.GROUP`. Each trained parameter is in one group.
    Clipping by norm takes the norm over all groups.
    """

    def __init__(self, groups: Mapping[str, ParameterGroup]) -> None:
        """Raises UsageError for no group, a name that no slot can have, or several rests."""
        self.groups = dict(sorted(groups.items()))
        if not self.groups:
            raise UsageError("ParameterGroups: no group was given.", "Pass at least one.")
        for name, group in self.groups.items():
            check_name(f"lr.{name}")
            if not isinstance(group, ParameterGroup) or not isinstance(group.optimizer, KINDS):
                raise UsageError(
                    f"ParameterGroups: {name!r} is not a ParameterGroup of an optimizer.",
                    "Write ParameterGroup(tallystick.AdamW(...), members).",
                )
            if isinstance(group.members, str):
                raise UsageError(
                    f"ParameterGroups: the members of {name!r} are a single string.",
                    "Write a tuple of names.",
                )
        if sum(group.members is None for group in self.groups.values()) > 1:
            raise UsageError(
                "ParameterGroups: more than one group takes all the other parameters.",
                "Name the members of all groups but one.",
            )

    def assigned(self, types: Mapping[str, TensorType]) -> dict[str, tuple[str, ...]]:
        """The parameters of each group, in bytewise order.

        Raises UsageError for a parameter that is in no group or in several.
        """
        found: dict[str, list[str]] = {name: [] for name in self.groups}
        rest = next((n for n, g in self.groups.items() if g.members is None), None)
        for name in sorted(types):
            owners = [n for n, g in self.groups.items() if g.has(name, types[name].shape)]
            owners = owners or ([] if rest is None else [rest])
            if len(owners) != 1:
                where = f"several groups: {', '.join(owners)}" if owners else "no group"
                raise UsageError(
                    f"The parameter {name} is in {where}.",
                    "Give each trained parameter one group, or freeze it (requires_grad_(False)).",
                )
            found[owners[0]].append(name)
        for name, members in found.items():
            if not members:
                raise UsageError(
                    f"The group {name!r} contains no parameter that the loss trains.",
                    "Name a submodule's path or a parameter of the module, or remove the group.",
                )
        return {name: tuple(members) for name, members in found.items()}
