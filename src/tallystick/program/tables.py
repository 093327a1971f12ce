"""Tables of numbers per step that a job derives from its rates (PROGRAM 8.2). Needs no torch.

IEEE operations, and powers that are rounded correctly, so that every machine derives the same ones.
"""

from __future__ import annotations

import decimal
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.program.optimizers import LearningRate

# Digits of the powers: their last rounding to binary64 then is that of the real number, but for a
# number whose 17th to 40th digits are those of a boundary.
_CONTEXT = decimal.Context(prec=40, rounding=decimal.ROUND_HALF_EVEN)


@dataclass(frozen=True)
class Derived(ABC):
    """A table made of the learning rate's numbers: `rate` is a number or a table's name."""

    rate: LearningRate

    @property
    def follows_steps(self) -> bool:
        """True if a number depends on its step, not on the rate alone."""
        return True

    @abstractmethod
    def at(self, step: int, rate: float) -> float:
        """The number of step `step`, counted from 1, whose learning rate is `rate`."""


@dataclass(frozen=True)
class Slowing(Derived):
    """Adagrad's rate: lr/(1 + (step - 1)·decay)."""

    decay: float

    def at(self, step: int, rate: float) -> float:
        return rate / (1.0 + (step - 1) * self.decay)


@dataclass(frozen=True)
class Power(Derived):
    """step^exponent, rounded to binary64."""

    exponent: float

    def at(self, step: int, rate: float) -> float:
        return power(step, self.exponent)


@dataclass(frozen=True)
class Relative(Derived):
    """Adafactor's rate: min(lr, 1/√step). `warmup` has lr·step in the place of lr."""

    warmup: bool = False

    def at(self, step: int, rate: float) -> float:
        return min(rate * step if self.warmup else rate, 1.0 / math.sqrt(step))


@dataclass(frozen=True)
class Complement(Derived):
    """1 - rate: the weight of a new value in an average whose decay is the rate."""

    def at(self, step: int, rate: float) -> float:
        return 1.0 - rate

    @property
    def follows_steps(self) -> bool:
        return False


@dataclass(frozen=True)
class Told(Derived):
    """A number for each training step of a job, which its loss computes from the number of the step
    (PROGRAM 5.21)."""

    numbers: tuple[float, ...]

    def at(self, step: int, rate: float) -> float:
        if step > len(self.numbers):
            raise UsageError(
                f"The loss's numbers are known for {len(self.numbers)} steps, but not for step "
                f"{step}.",
                "Capture it for as many steps as the job has.",
            )
        return self.numbers[step - 1]


Scalar = float | str | Derived


def power(step: int, exponent: float) -> float:
    """`step`^`exponent`, the binary64 number nearest to it."""
    with decimal.localcontext(_CONTEXT):
        return float((decimal.Decimal(step).ln() * decimal.Decimal(exponent)).exp())


def number_at(scalar: Scalar, step: int) -> float:
    """A scalar's number in step `step`, counted from 1, where its rate is a number.

    Raises UsageError where it is the name of a table.
    """
    rate = scalar.rate if isinstance(scalar, Derived) else scalar
    if isinstance(rate, str):
        raise UsageError(
            f"The numbers of {rate!r} come from a job's table, which does not exist here.",
            "Make a job.",
        )
    return scalar.at(step, float(rate)) if isinstance(scalar, Derived) else float(rate)
