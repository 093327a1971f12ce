"""A lie at genesis: training starts from other weights than the client's.

Gain: the trainer passes off a prepared model as trained from the client's initial state. How:
one weight of state[0] differs. Caught: the job fixes the genesis state root (clause 3.4).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.cheats.override import Override

from ._shared import Attack


class Genesis(Override):
    def genesis(self, state: State) -> None:
        slot = next(name for name in state.slots if name.startswith("param."))
        state.slots[slot].reshape(-1)[0] += 1  # type: ignore[operator]


def build(job: Job, params: dict[str, Any]) -> Override:
    return Genesis()


ATTACK = Attack("lie-genesis", "training", "training starts from other weights", build)
