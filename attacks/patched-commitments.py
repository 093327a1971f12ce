"""Patched commitments: an honest run with one checkpoint root replaced.

Gain: at the job's last step the run passes off another final state as the trained one. In the
middle of the run there is no gain, unless the dispute never ended. How: the root of the checkpoint
at or after step `checkpoint` is another digest; at the job's last step it is the final state.
Caught: the nodes of the step before it make another state (clause 5.3).
"""

from __future__ import annotations

from typing import Any

from tallystick.commit.encoding import sha256
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack


class Patched(Override):
    def __init__(self, at: int) -> None:
        self.at = at

    def root(self, step: int, root: bytes) -> bytes:
        return sha256(root) if step == self.at else root


def build(job: Job, params: dict[str, Any]) -> Override:
    wanted = job.steps // 2 if params["checkpoint"] == MIDDLE else params["checkpoint"]
    if not 1 <= wanted <= job.steps:
        raise UsageError(f"The job has no state {wanted}.", f"Choose 1 to {job.steps}.")
    due = -(-wanted // job.interval) * job.interval
    return Patched(min(due, job.steps))


ATTACK = Attack(
    "patched-commitments",
    "records",
    "one checkpoint root is replaced",
    build,
    {"checkpoint": MIDDLE},
)
