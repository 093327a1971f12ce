"""A false embedding: one number of it is another.

Gain: a text is found, or is not found, by whoever searches with embeddings. How: the largest number
of the embedding is doubled. Caught: the number is not what the program makes of the text (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.answers.encoding_programs import VALUES
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack, falsify
from ._shared import KIND, AtNode, slot_node


def doubled(outputs: Sequence[Array]) -> None:
    falsify(outputs[0])


def build(job: Job, params: dict[str, Any]) -> Override:
    return AtNode(slot_node(job, VALUES), doubled)


ATTACK = Attack("false-embedding", KIND, "a number of an embedding is another one", build)
