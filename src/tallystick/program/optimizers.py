"""Optimizer descriptions: a job's update rule (NUMERICS 11). Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallystick.errors import UsageError

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


def _check_rate(lr: LearningRate) -> None:
    if not isinstance(lr, str):
        _check(lr=float(lr))
    elif not lr:
        raise UsageError(
            "Optimizer: lr is an empty name.",
            "Give a number, or the name of a table among the job's `schedules`.",
        )


@dataclass(frozen=True)
class SGD:
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

    def decay_of(self, name: str, shape: tuple[int, ...]) -> float:
        """Weight decay of parameter `name` of `shape`."""
        return _decay(self.weight_decay, self.no_decay, self.decay_min_ndim, name, shape)


@dataclass(frozen=True)
class Adam:
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

    def decay_of(self, name: str, shape: tuple[int, ...]) -> float:
        """Weight decay of parameter `name` of `shape`."""
        return _decay(self.weight_decay, self.no_decay, self.decay_min_ndim, name, shape)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (NUMERICS 11.2); fields as in `SGD`."""

    weight_decay: float = 0.01


Optimizer = SGD | Adam | AdamW
