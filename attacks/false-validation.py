"""A false validation number: the mean loss of a pass is said to be half of what it is.

Gain: a model that is chosen by its validation loss looks better than it is, and the run goes on
where it would have stopped. How: in the first decision, the node that divides the sum of the pass
has a false output. Caught: the sum is in the committed state, and the referee divides it (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.job.parts import DECIDE
from tallystick.program.ir import Node
from tallystick.run.cheats.override import Override

from ._shared import Attack, steps_of


class Halved(Override):
    def __init__(self, at: int, index: int) -> None:
        self.at, self.index = at, index

    def watches(self, step: int) -> bool:
        return step == self.at

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if (step, index) == (self.at, self.index):
            mean: Any = outputs[0]
            mean[...] = mean / 2 if mean else -1


def build(job: Job, params: dict[str, Any]) -> Override:
    (step,) = steps_of(job, DECIDE)
    return Halved(step, job.terms.program_at(step).output_values["loss"].node)


ATTACK = Attack(
    "false-validation", "validation", "the mean loss of a pass is said to be half of it", build
)
