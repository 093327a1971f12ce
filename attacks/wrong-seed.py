"""A wrong seed: dropout draws other numbers than the job's.

Gain: the trainer tries seeds until the loss looks best, and hides it. How: the random key has
another seed from step `step` on. Caught: the referee derives the key from the job (case 2d).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack, nothing_to_do


class Seed(Override):
    def __init__(self, first: int) -> None:
        self.first = first

    def random_key(self, step: int, key: tuple[int, int]) -> tuple[int, int]:
        return (key[0] + 1, key[1]) if step >= self.first else key


def build(job: Job, params: dict[str, Any]) -> Override:
    if not job.program.uses_rng:
        raise nothing_to_do("the job draws no random numbers")
    return Seed(params["step"])


ATTACK = Attack(
    "wrong-seed", "training", "another random seed from one step on", build, {"step": MIDDLE}
)
