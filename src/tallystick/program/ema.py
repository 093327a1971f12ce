"""An exponential moving average of the parameters, in slots of its own (PROGRAM 8.10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.program.build import Builder
from tallystick.program.ir import Value
from tallystick.program.tables import Complement, Scalar
from tallystick.program.update_base import Given, SlotRule

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
