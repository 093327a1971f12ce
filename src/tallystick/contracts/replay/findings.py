"""What goes wrong with a log that another party hands over, and what following it finds: faults,
findings against its writer, and the choices that it left."""

from __future__ import annotations

from dataclasses import dataclass, field
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


# "forged entry": NUMERICS 14.7. "unfit entry", of a published log: from the auditor's operands no
# kernel rounds to its value (14.10), which is not always a lie (14.9.2). "impossible entry": of an
# element that does not exist. "malformed block": no block by COMMITMENTS 10.2. "log": missing,
# damaged, swapped; step-wide if `node` is None.
Kind = Literal["forged entry", "unfit entry", "impossible entry", "malformed block", "log"]
UNFIT: Kind = "unfit entry"

# Findings kept in full; the others are counted, so that a hostile log cannot fill the memory.
KEPT = 1000


@dataclass(frozen=True)
class Finding:
    """One finding against a log.

    `element` is the row-major position in the output. `direction` is 0 for down, 1 for up (bounded)
    or the entry 0, 1, 2 (published). Both are None where the finding has none.
    """

    kind: Kind
    step: int
    node: int | None = None
    operator: str | None = None
    output: int | None = None
    element: int | None = None
    direction: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        if self.node is None:
            return self.detail
        place = f"step {self.step}, node {self.node} ({self.operator}), output {self.output}"
        if self.element is not None:
            place += f", element {self.element}"
        if self.direction is not None:
            place += f", entry {self.direction}"
        return f"{self.kind}: {place}" + (f": {self.detail}" if self.detail else "")


@dataclass
class Findings:
    """All findings of a step, or of many, in order: the first `KEPT` in full."""

    kept: list[Finding] = field(default_factory=list)
    count: int = 0

    def add(self, finding: Finding) -> None:
        self.count += 1
        if len(self.kept) < KEPT:
            self.kept.append(finding)

    def extend(self, others: Findings) -> None:
        """Add those of another step."""
        self.kept += others.kept[: self.room_for(len(others.kept))]
        self.count += others.count

    def room_for(self, many: int) -> int:
        """The number of `many` further findings that would be kept; the others are only counted."""
        return min(many, max(0, KEPT - len(self.kept)))

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass
class BoundaryChoices:
    """Choices of NUMERICS 14.8, as far as they were determined.

    `left` counts entries, except those known to have no effect. An element whose V was not computed
    counts as one where V has two elements, so `left` may be too large but never too small. `taken`
    counts values that are known not to be R(v*), so it may be too small but never too large. It is
    exact where the follower sums every entry's element.
    """

    left: int = 0
    taken: int = 0

    def extend(self, others: BoundaryChoices) -> None:
        """Add those of another step."""
        self.left += others.left
        self.taken += others.taken
