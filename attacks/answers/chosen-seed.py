"""A chosen seed: the server draws until it likes the answer.

Gain: of many answers the shortest one, or the one that suits it. How: the noise has another key
than the request's. Caught: the referee derives the key from the job (case 2d).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack, nothing_to_do
from ._shared import KIND, require_answer


class Chosen(Override):
    def random_key(self, step: int, key: tuple[int, int]) -> tuple[int, int]:
        return key[0] ^ 1, key[1]


def build(job: Job, params: dict[str, Any]) -> Override:
    require_answer(job)
    if not job.program.uses_rng:
        raise nothing_to_do("the answer is not drawn: it has no noise")
    return Chosen()


ATTACK = Attack("chosen-seed", KIND, "the answer is drawn with another seed", build)
