"""A truncated context: the answer is computed without the beginning of the text.

Gain: less memory for keys and values, and less work for each token. How: in one layer, no query
sees the first key, unless it is the only one. Caught: weights of attention are not what the
operator makes of the scores (case 3).
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


def truncated(outputs: Sequence[Array]) -> None:
    p: Any = outputs[0]
    p[:, :, 1:, 0] = 0
    total = p.sum(axis=-1, keepdims=True)
    p[...] = p / np.where(total == 0, np.float32(1), total)


def build(job: Job, params: dict[str, Any]) -> Override:
    require_answer(job)
    return AtNode(node_of(job, -1, "tallystick.attention_weights"), truncated)


ATTACK = Attack("truncated-context", KIND, "the answer forgets the beginning of the text", build)
