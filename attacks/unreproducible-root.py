"""Roots that cannot be reproduced: from one step on, the run commits to made-up digests.

Gain: the run needs no training from there on. How: every root from `step` on is a made-up digest.
Caught: the party cannot show nodes that make such a state (clause 5.3: an unopenable commitment).
"""

from __future__ import annotations

from typing import Any

from tallystick.commit.encoding import sha256
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack


class MadeUp(Override):
    def __init__(self, first: int) -> None:
        self.first = max(1, first)

    def root(self, step: int, root: bytes) -> bytes:
        return sha256(b"made up" + step.to_bytes(8, "little")) if step >= self.first else root


def build(job: Job, params: dict[str, Any]) -> Override:
    return MadeUp(params["step"])


ATTACK = Attack(
    "unreproducible-root", "records", "roots of states that never were", build, {"step": MIDDLE}
)
