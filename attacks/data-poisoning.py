"""Data poisoning: records of the provider's own are trained on instead of the client's.

Gain: the model learns what the provider wants. How: from step `step` on, the first record of every
batch is replaced by the last one. Caught: the batch tensor is derived from the job by anyone, and
the first differing element is compared with the client's own record (case 2c).
"""

from __future__ import annotations

from typing import Any

from tallystick.commit.tensor import Array
from tallystick.run.job import Job
from tallystick.run.override import Override

from ._shared import MIDDLE, Attack


class Poison(Override):
    def __init__(self, first: int) -> None:
        self.first = first

    def batch(self, step: int, batch: dict[str, Array]) -> None:
        if step >= self.first:
            for array in batch.values():
                array[0] = array[-1]


def build(job: Job, params: dict[str, Any]) -> Override:
    return Poison(params["step"])


ATTACK = Attack(
    "data-poisoning", "other records are trained on from one step on", build, {"step": MIDDLE}
)
