"""A quantised model: all weights are rounded to 8 bits, each row with a scale of its own.

Gain: a quarter of the memory, and so a cheaper machine. How: the weights that the nodes read are
rounded, those that the run commits to are not. Caught: its nodes
make a state with those weights, and it has committed to one with the model's (clause 5.3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack
from ._shared import KIND, OtherWeights, floats


def rounded(array: Array) -> Array:
    scale = np.abs(array).max(axis=-1, keepdims=True) / np.float32(127)
    scale = np.where(scale == 0, np.float32(1), scale)
    return (np.rint(array / scale) * scale).astype(np.float32)


def build(job: Job, params: dict[str, Any]) -> Override:
    return OtherWeights(floats(job), rounded)


ATTACK = Attack("quantised", KIND, "all weights are rounded to 8 bits", build)
