"""What one execution of an audit found, in a form that goes from one process to another."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tallystick.run.logs.report import Found
from tallystick.run.show.audit_report import Difference


@dataclass(frozen=True)
class StretchOutcome:
    """The steps `first` to `last` - 1, executed and compared.

    `difference` is the first difference, if there was one; `at_start` says that it is the stored
    state from which the execution was to begin, so that no step was executed. `choices` are (left,
    taken) of NUMERICS 14.8, None under a contract without logs. `findings` are forged entries.
    """

    first: int
    last: int
    checkpoints: int
    losses: int
    stored: int
    isa: str
    threads: int
    seconds: float
    difference: Difference | None = None
    at_start: bool = False
    choices: tuple[int, int] | None = None
    findings: list[Found] = field(default_factory=list)
    unnamed: int = 0

    @property
    def agreed(self) -> bool:
        """True if every compared bit was equal. Forged entries are looked at in the report."""
        return self.difference is None

    def judged(self) -> StretchOutcome:
        """What another repetition of the same steps must find too, on whatever machine: all but
        the machine's own figures and the choices, of which a machine may see more or fewer."""
        return replace(self, isa="", threads=0, seconds=0.0, choices=None)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values; `outcome_of` reads them."""
        return {**asdict(self), "seconds": round(1000 * self.seconds)}


def outcome_of(value: dict[str, Any]) -> StretchOutcome:
    """The outcome in `value`, which `as_json` made. Raises TypeError, KeyError, ValueError."""
    found = dict(value)
    difference, choices = found.pop("difference"), found.pop("choices")
    if difference is not None:
        first, last = difference["interval"]
        difference = Difference(**{**difference, "interval": (int(first), int(last))})
    if choices is not None:
        left, taken = choices
        choices = (int(left), int(taken))
    seconds = int(found.pop("seconds")) / 1000
    return StretchOutcome(**found, seconds=seconds, difference=difference, choices=choices)
