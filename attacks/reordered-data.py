"""Reordered data: the right records at the wrong steps.

Gain: the order alone can poison a model. How: the run takes the batches in reverse order of steps.
Caught: the order is the job's keyed permutation, and the referee computes it at any position (case
2c).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import Attack


class Reversed(Override):
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def data_step(self, step: int) -> int:
        return self.steps - 1 - step


def build(job: Job, params: dict[str, Any]) -> Override:
    return Reversed(job.steps)


ATTACK = Attack("reordered-data", "batches in reverse order", build)
