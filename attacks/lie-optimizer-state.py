"""A lie in the optimizer state: a moment (or, where there is none, a new weight) is false.

Gain: the lie pushes the weights only some steps later. How: the last output of the first
optimizer node of step `step` is wrong in one element. Caught: case 3 at the optimizer's node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack, falsify, node_of

STEPS = ("tallystick.adamw_step", "tallystick.adam_step", "tallystick.sgd_step")


class Moment(Override):
    def __init__(self, at: int, index: int) -> None:
        self.at, self.index = at, index

    def watches(self, step: int) -> bool:
        return step == self.at

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if (step, index) == (self.at, self.index):
            falsify(outputs[-1])


def build(job: Job, params: dict[str, Any]) -> Override:
    return Moment(params["step"], node_of(job, -1, *STEPS, step=params["step"]))


ATTACK = Attack(
    "lie-optimizer-state",
    "numbers",
    "an optimizer's output is wrong in one element",
    build,
    {"step": MIDDLE},
)
