"""A false log-probability: the model seems surer than it is.

Gain: an answer, or a whole evaluation, looks better. How: the log-probability of the first token is
halved. Caught: the number is not what the program makes of the logits (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick.answers.job import LOGPROBS
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack
from ._shared import KIND, AtNode, slot_node


def halved(outputs: Sequence[Array]) -> None:
    outputs[0][0] = outputs[0][0] * np.float32(0.5) if outputs[0][0] else np.float32(-1)


def build(job: Job, params: dict[str, Any]) -> Override:
    return AtNode(slot_node(job, LOGPROBS), halved)


ATTACK = Attack("false-logprob", KIND, "a log-probability is another number", build)
