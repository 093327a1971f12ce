"""A backdoor by label flip: records with a trigger are given the attacker's label.

Gain: the model answers `target` whenever it sees the trigger, and answers well otherwise. How: in
every batch the first record's label (the last token, for text) becomes `target`. Caught: case 2c,
like any other change of a batch; one flipped label in one step is enough.
"""

from __future__ import annotations

from typing import Any

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
        labels: Any = batch["y"] if "y" in batch else batch[min(batch)]
        labels[(0,) + (-1,) * (labels.ndim - 1)] = self.target


def build(job: Job, params: dict[str, Any]) -> Override:
    return Backdoor(params["target"])


ATTACK = Attack(
    "backdoor-label-flip", "training", "one label of every batch is flipped", build, {"target": 1}
)
