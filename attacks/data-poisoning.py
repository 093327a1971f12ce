"""Data poisoning: records of the provider's own are trained on instead of the client's.

Gain: the model learns what the provider wants. How: from step `step` on, the first record of every
batch is replaced by the last one. Caught: the batch tensor is derived from the job by anyone, and
the first differing element is compared with the client's own record (case 2c).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._poison import Poison
from ._shared import MIDDLE, Attack


def build(job: Job, params: dict[str, Any]) -> Override:
    return Poison(job, params["step"])


ATTACK = Attack(
    "data-poisoning", "other records are trained on from one step on", build, {"step": MIDDLE}
)
