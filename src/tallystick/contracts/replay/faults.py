"""Faults of a rounding log that another party hands over."""

from __future__ import annotations

from typing import Literal

from tallystick.errors import CorruptFileError

Fault = Literal["missing", "truncated", "swapped", "reordered", "altered", "malformed"]

_ADVICE = {
    "missing": "Ask for the log, or for a run that has all of them.",
    "truncated": "Ask its sender for an intact copy.",
    "swapped": "Ask its sender for the right one.",
    "reordered": "Ask its sender for an intact copy.",
    "altered": "Ask its sender for an intact copy.",
    "malformed": "No honest party writes it: refuse it.",
}


class LogCorruptError(CorruptFileError):
    """A step's rounding log is missing, damaged, of another step, or malformed.

    `fault` names the fault. `step` is the step for which the log was read. `node`, `output` and
    `operator` name the section with the fault, and are None for a fault of the whole log.
    """

    def __init__(
        self,
        fault: Fault,
        why: str,
        step: int,
        node: int | None = None,
        output: int | None = None,
        operator: str | None = None,
    ) -> None:
        place = f"rounding log of step {step}"
        if node is not None:
            place += f", output {output} of node {node}" + (f" ({operator})" if operator else "")
        super().__init__(f"The {place} is {fault}: {why}.", _ADVICE[fault])
        self.fault = fault
        self.why = why
        self.step = step
        self.node = node
        self.output = output
        self.operator = operator
