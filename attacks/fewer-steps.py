"""Fewer steps passed off as all: the run ends early and signs that it is finished.

Gain: the rest of the compute. How: the run commits to its state after `step` steps. Caught: a run
may end before the job's last step only with a non-finite loss, and the loss chain shows that the
loss was finite (clause 4.9). In a job that never stops early the commitment alone shows the lie
(clause 3.2). In a job that stops by a slot, the slot of that state is false (clause 4.11).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack


class Early(Override):
    def __init__(self, end: int) -> None:
        self.end = max(1, end)

    def final_step(self, job: Job) -> int:
        return self.end


def build(job: Job, params: dict[str, Any]) -> Override:
    return Early(params["step"])


ATTACK = Attack(
    "fewer-steps", "length", "the run ends early and claims to be whole", build, {"step": MIDDLE}
)
