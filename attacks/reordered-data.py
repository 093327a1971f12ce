"""Reordered data: the right records at the wrong steps.

Gain: the order alone can poison a model. How: the run takes the batches of training in reverse
order of steps. Caught: the order is the job's keyed permutation, and the referee computes it at any
position (case 2c).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import Attack


class Reversed(Override):
    def __init__(self, job: Job) -> None:
        timetable = job.commitment.timetable
        steps = [step for step in range(job.steps) if not timetable.at(step).program]
        self.instead = dict(zip(steps, reversed(steps), strict=True))

    def data_step(self, step: int) -> int:
        return self.instead.get(step, step)


def build(job: Job, params: dict[str, Any]) -> Override:
    return Reversed(job)


ATTACK = Attack("reordered-data", "training", "batches in reverse order", build)
