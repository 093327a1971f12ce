"""A swapped program over equal weights: one layer's activation is left out.

Gain: less work for each token, and no weight tells. How: the last activation function gives zeros
for negative numbers, whatever the program says. Caught: the node's output is not what its operator
makes of its input (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack, node_of
from ._shared import KIND, AtNode, require_answer

ACTIVATIONS = ("aten.silu", "aten.gelu", "aten.tanh", "aten.relu", "aten.sigmoid")


def straight(outputs: Sequence[Array]) -> None:
    outputs[0][...] = np.maximum(outputs[0], 0) * np.float32(0.5)


def build(job: Job, params: dict[str, Any]) -> Override:
    require_answer(job)
    return AtNode(node_of(job, -1, *ACTIVATIONS), straight)


ATTACK = Attack("swapped-program", KIND, "another program over the same weights", build)
