"""Stale optimizer state: the run does not update the moments.

Gain: the run saves the memory traffic of the optimizer, or only looks trained. How: after step
`step`, slots `opt.…` keep the values they had before it. Caught: the nodes of the step make another
state than the one committed to (clause 5.3).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack, nothing_to_do, program_of


class Stale(Override):
    def __init__(self, at: int) -> None:
        self.at, self.kept = at, {}  # type: ignore[var-annotated]

    def before(self, step: int, state: State) -> None:
        if step == self.at:
            self.kept = {n: a.copy() for n, a in state.slots.items() if n.startswith("opt.")}

    def after(self, step: int, state: State) -> None:
        if step == self.at:
            for name, array in self.kept.items():
                state.slots[name][...] = array


def build(job: Job, params: dict[str, Any]) -> Override:
    if not any(name.startswith("opt.") for name in job.program.state_types):
        raise nothing_to_do("its optimizer keeps no state")
    if program_of(job, params["step"]) != program_of(job, 0):
        raise nothing_to_do(f"step {params['step']} trains nothing")
    return Stale(params["step"])


ATTACK = Attack(
    "stale-optimizer-state",
    "training",
    "optimizer state of one step is not updated",
    build,
    {"step": MIDDLE},
)
