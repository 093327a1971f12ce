"""A false early stop: the decision says that the patience is over.

Gain: the rest of the compute, with a validation that seems to allow it. How: in the first decision
the comparison that makes `control.stop` has a false output, and the run ends. Caught: the referee
compares the committed number of passes waited itself (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.commit.job import STOP_SLOT
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.job.parts import DECIDE
from tallystick.program.ir import Node
from tallystick.run.cheats.override import Override

from ._shared import Attack, nothing_to_do, steps_of


class Stop(Override):
    def __init__(self, at: int, index: int) -> None:
        self.at, self.index = at, index

    def watches(self, step: int) -> bool:
        return step == self.at

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if (step, index) == (self.at, self.index):
            stop: Any = outputs[0]
            stop[...] = not stop


def build(job: Job, params: dict[str, Any]) -> Override:
    if not job.commitment.stop_on_slot:
        raise nothing_to_do("no slot stops a run of the job")
    (step,) = steps_of(job, DECIDE)
    return Stop(step, job.terms.program_at(step).next_state[STOP_SLOT].node)


ATTACK = Attack("false-stop", "validation", "the decision after a pass is turned round", build)
