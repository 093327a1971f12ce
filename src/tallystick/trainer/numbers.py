"""The numbers of each training step, as the loops that a course is read from count them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.program.capture.known import KnownSteps

_ACCUMULATED = "the batches of one accumulated update have several"
_OF_A_PASS = "the batches of a pass have several"


@dataclass(frozen=True)
class Epochs:
    """How a loop counts: `steps` updates of `accumulate` batches each, `batches` batches in an
    epoch, whose last update may have fewer."""

    steps: int
    batches: int
    accumulate: int

    @property
    def updates(self) -> int:
        """The updates of an epoch, one at least."""
        return max(1, -(-self.batches // self.accumulate))

    @property
    def count(self) -> int:
        """The epochs that the steps begin."""
        return -(-self.steps // self.updates)

    def whole(self) -> KnownSteps:
        """`step` and `epoch` from 0, `batch` in its epoch; `steps`, `epochs` and `batches` are how
        many there are."""
        return KnownSteps(
            self.steps,
            {
                "step": range(self.steps),
                "epoch": [t // self.updates for t in range(self.steps)],
                "batch": [t % self.updates * self.accumulate for t in range(self.steps)],
            },
            {"steps": self.steps, "epochs": self.count, "batches": max(1, self.batches)},
            {"batch": _ACCUMULATED} if self.accumulate > 1 else {},
        )

    def passes(self, every: int) -> KnownSteps:
        """As `whole`, in the passes of validation after each `every` updates."""
        made = self._made(every)
        whole = self.whole()
        columns = {
            "step": made,
            "epoch": [n // self.updates for n in made],
            "batch": [0] * len(made),
        }
        return KnownSteps(len(made), columns, whole.constants, {"batch": _OF_A_PASS})

    def fractions(self) -> KnownSteps:
        """transformers' own: `epoch` is the part of the epochs that the updates before have made.

        It is set after an update, to its epoch and the part of that epoch's batches.
        """
        made = range(self.steps)
        return KnownSteps(self.steps, {"step": made, "epoch": [self._fraction(n) for n in made]})

    def fractions_in_passes(self, every: int) -> KnownSteps:
        """As `fractions`, in the passes of validation after each `every` updates."""
        made = self._made(every)
        return KnownSteps(len(made), {"step": made, "epoch": [self._fraction(n) for n in made]})

    def _made(self, every: int) -> list[int]:
        """The updates that are made before each pass."""
        every = max(1, every)  # another one is refused where the job is written
        return list(range(every, self.steps + 1, every)) or [self.steps]

    def _fraction(self, made: int) -> float:
        """The number of epochs in this many updates."""
        if not made:
            return 0.0
        epoch, number = divmod(made - 1, self.updates)
        done = min((number + 1) * self.accumulate, self.batches)
        return epoch + done / max(1, self.batches)


def takes_numbers(loss: Callable[..., Any]) -> bool:
    """Whether a loss takes the numbers of the step: by a third parameter without a default, or one
    that is named `at`."""
    try:
        parameters = list(inspect.signature(loss).parameters.values())
    except (TypeError, ValueError):
        return False
    positional = [
        p
        for p in parameters
        if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(positional) > 2 and (
        positional[2].name == "at" or positional[2].default is inspect.Parameter.empty
    )
