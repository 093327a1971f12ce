"""Reordered data: the right records at the wrong steps.

Gain: the order alone can poison a model. How: the run takes the batches of training in reverse order of steps.
Caught: the order is the job's keyed permutation, and the referee computes it at any position (case
2c).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import Attack


class Reversed(Override):
    def __init__(self, job: Job) -> None:
        self.timetable = job.commitment.timetable
        self.batches = self.timetable.count(0, job.steps)

    def data_step(self, step: int) -> int:
        at = self.timetable.at(step)
        if at.program or self.timetable.programs[0].by_pass:
            return step
        return self.timetable.steps_for(0, self.batches - self.timetable.row(at)) - 1


def build(job: Job, params: dict[str, Any]) -> Override:
    return Reversed(job)


ATTACK = Attack("reordered-data", "batches in reverse order", build)
