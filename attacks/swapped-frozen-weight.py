"""A swapped frozen weight: the run replaces a passed-through slot between two steps.

Gain: a backdoor in a part that is not trained, so that no operator's output is ever wrong. How:
after step `step` the run changes one value of a slot that the program passes through (of a
parameter, where the job freezes no weight). Caught: the COMMIT node binds every slot of the next
state, passed through or not (clause 5.3).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.program.ir import Program
from tallystick.program.state import State
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack


class Swap(Override):
    def __init__(self, at: int, slot: str) -> None:
        self.at, self.slot = at, slot

    def after(self, step: int, state: State) -> None:
        if step == self.at:
            state.slots[self.slot].reshape(-1)[0] += 1  # type: ignore[operator]


def frozen_slots(job: Job) -> list[str]:
    """Slots whose next state is the slot itself, in every program."""
    return [
        name
        for name in job.program.state_types
        if all(_passed(program, name) for program in job.terms.programs)
    ]


def _passed(program: Program, name: str) -> bool:
    value = program.next_state[name]
    return value.is_input and program.inputs[value.out].name == name


def build(job: Job, params: dict[str, Any]) -> Override:
    parameters = [name for name in job.program.state_types if name.startswith("param.")]
    return Swap(params["step"], [*frozen_slots(job), *parameters][0])


ATTACK = Attack(
    "swapped-frozen-weight",
    "training",
    "a frozen weight is replaced between steps",
    build,
    {"step": MIDDLE},
)
