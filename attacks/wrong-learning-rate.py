"""A wrong learning rate: the run uses another schedule than the job's.

Gain: the run seems to come from a search that was not made, or it is sabotage. How: the run
multiplies every per-step scalar by `percent` / 100 from step `step` on. Caught: the referee derives
scalars from the job itself (case 2d).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack, nothing_to_do


class Rate(Override):
    def __init__(self, first: int, factor: float) -> None:
        self.first, self.factor = first, factor

    def scalars(self, step: int, scalars: dict[str, float]) -> None:
        if step >= self.first:
            for name in scalars:
                scalars[name] *= self.factor


def build(job: Job, params: dict[str, Any]) -> Override:
    if not job.scalars:
        raise nothing_to_do("the job has no scalars")
    return Rate(params["step"], params["percent"] / 100)


ATTACK = Attack(
    "wrong-learning-rate",
    "training",
    "another learning rate from one step on",
    build,
    {"step": MIDDLE, "percent": 90},
)
