"""Data poisoning: the provider trains on records of its own instead of the client's.

Gain: the model learns the provider's aims. How: from step `step` on, the last record of every
batch replaces the first one. Caught: anyone derives the batch tensor from the job, and the referee
compares the first differing element with the client's own record (case 2c).
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
    "data-poisoning",
    "training",
    "other records are trained on from one step on",
    build,
    {"step": MIDDLE},
)
