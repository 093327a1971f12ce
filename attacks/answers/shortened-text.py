"""A shortened text: the embedding is of its beginning alone.

Gain: less work for long texts, and nobody hears of it. How: the program is told that the text has
half its tokens. Caught: the first node that reads the length says that it read another one than the
request's record has (case 2c).
"""

from __future__ import annotations

from typing import Any

from tallystick.answers.encoding_programs import VALUES
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack
from ._shared import KIND, slot_node


class ShortenedText(Override):
    def batch(self, step: int, batch: dict[str, Array]) -> None:
        length = batch["length"][0]
        length[0] = (length[0] + 1) // 2


def build(job: Job, params: dict[str, Any]) -> Override:
    slot_node(job, VALUES)
    return ShortenedText()


ATTACK = Attack("shortened-text", KIND, "the embedding is of the text's beginning", build)
