"""Another adapter: the matrices of the model's adapter are other numbers.

Gain: an adapter with a backdoor, or an older one, passed off as the one that was asked for. How:
while the answer is computed, the second matrix of each adapted layer has the other sign. Caught:
its nodes make a state with those matrices, and it has committed to one with the adapter's (clause
5.3). A merged adapter has no matrices of its own: there `other-weight` is the same cheat.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack
from ._shared import KIND, OtherWeights, second_matrices


def turned(array: Array) -> Array:
    return np.negative(array)


def build(job: Job, params: dict[str, Any]) -> Override:
    return OtherWeights(second_matrices(job), turned)


ATTACK = Attack("other-adapter", KIND, "the adapter's matrices are other numbers", build)
