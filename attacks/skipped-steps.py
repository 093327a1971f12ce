"""The lazy trainer: it does not execute some steps.

Gain: a share of the compute. How: every `every`-th step leaves the state as it is and repeats the
last loss. Caught: the prover executes the step's nodes for the dispute, and they do not make the
state that the run has committed to (clause 5.3).
"""

from __future__ import annotations

from typing import Any

from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import Attack


class Lazy(Override):
    def __init__(self, every: int) -> None:
        self.every = every

    def skips(self, step: int) -> bool:
        return step % self.every == self.every - 1


def build(job: Job, params: dict[str, Any]) -> Override:
    if params["every"] < 1:
        raise UsageError("every must be at least 1.")
    return Lazy(params["every"])


ATTACK = Attack("skipped-steps", "length", "every third step is not executed", build, {"every": 3})
