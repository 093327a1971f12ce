"""Another model: one weight is another number.

Gain: a model with a backdoor, a cheaper one, one that was trained on, passed off as the one that
was asked for. How: one number of the smallest weight is changed while the answer is computed.
Caught: its nodes make a state with that weight, and it has committed to one with the model's
(clause 5.3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack
from ._shared import KIND, OtherWeights, floats


def changed(array: Array) -> Array:
    other = np.array(array, copy=True)
    place = np.unravel_index(int(np.abs(other).argmax()), other.shape)
    other[place] = -other[place]
    return other


def build(job: Job, params: dict[str, Any]) -> Override:
    return OtherWeights(floats(job)[-1:], changed)


ATTACK = Attack("other-weight", KIND, "one weight of the model is another number", build)
