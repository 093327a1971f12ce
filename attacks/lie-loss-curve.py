"""A lie in the loss curve: the committed losses are better than the computed ones.

Gain: a nicer curve over the same weights. How: from step `step` on, the loss that enters the loss
chain is half the true one. Caught: the chain is part of the state, and the COMMIT node reads the
loss that the program computed (clause 5.8, case 3, or 2b if its record names another loss).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack


class Nicer(Override):
    def __init__(self, first: int) -> None:
        self.first = first

    def loss(self, step: int, bits: int) -> int:
        if step < self.first:
            return bits
        half = np.float32(np.uint32(bits).view(np.float32) / np.float32(2))
        return int(half.view(np.uint32))


def build(job: Job, params: dict[str, Any]) -> Override:
    return Nicer(params["step"])


ATTACK = Attack("lie-loss-curve", "numbers", "committed losses are halved", build, {"step": MIDDLE})
