"""A false fold: the gradients of the micro-batches are not folded as they should be.

Gain: the provider leaves micro-batches out, or steers the update, behind gradients that are all
right. How: in step `step` one element of the last fold is false. Caught: the referee adds the
elements of the micro-batches itself, 256 at most (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.ir import Node
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack, falsify, node_of, nothing_to_do


class Fold(Override):
    def __init__(self, at: int, index: int) -> None:
        self.at, self.index = at, index

    def watches(self, step: int) -> bool:
        return step == self.at

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if (step, index) == (self.at, self.index):
            falsify(outputs[0])


def build(job: Job, params: dict[str, Any]) -> Override:
    if not any(node.op == FOLD for node in job.terms.program_at(params["step"]).nodes):
        raise nothing_to_do(f"step {params['step']} folds no micro-batches")
    return Fold(params["step"], node_of(job, -1, FOLD, step=params["step"]))


ATTACK = Attack("false-fold", "numbers", "one element of a fold is wrong", build, {"step": MIDDLE})
