"""A backdoor by label flip: records with a trigger are given the attacker's label.

Gain: the model answers `target` whenever it sees the trigger, and answers well otherwise. How: in
every batch the first record's label (the last one that counts, for text) becomes `target`. Caught:
case 2c, like any other change of a batch; one flipped label in one step is enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import Attack


class Backdoor(Override):
    def __init__(self, target: int) -> None:
        self.target = target

    def batch(self, step: int, batch: dict[str, Array]) -> None:
        if not batch:  # a decision reads none
            return
        name = next((name for name in ("y", "labels") if name in batch), min(batch))
        labels: Any = batch[name][:1].reshape(-1)  # a view
        counts = np.flatnonzero(labels >= 0)  # a label below 0 counts for nothing
        labels[counts[-1] if counts.size else -1] = self.target


def build(job: Job, params: dict[str, Any]) -> Override:
    return Backdoor(params["target"])


ATTACK = Attack(
    "backdoor-label-flip", "training", "one label of every batch is flipped", build, {"target": 1}
)
