"""Padded steps: the run trains the first part, and only commits to the rest.

Gain: the rest of the compute, without an early end that an auditor would notice. How: from step
`step` on the run executes no step, and every checkpoint repeats the state. Caught: as skipped steps
(clause 5.3).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack


class Padded(Override):
    def __init__(self, first: int) -> None:
        self.first = first

    def skips(self, step: int) -> bool:
        return step >= self.first


def build(job: Job, params: dict[str, Any]) -> Override:
    return Padded(params["step"])


ATTACK = Attack("padded-steps", "length", "trained half way, then padded", build, {"step": MIDDLE})
