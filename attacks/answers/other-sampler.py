"""Another sampler: the answer is drawn at an eighth of the temperature that was asked for.

Gain: shorter and more predictable answers, which a draft model guesses more often. How: the
sampler reads another temperature. Caught: the record of the request has the one that was asked for
(case 2c).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack, nothing_to_do
from ._shared import KIND, require_answer


class Cooler(Override):
    def batch(self, step: int, batch: dict[str, Array]) -> None:
        batch["temperature"][...] *= np.float32(0.125)


def build(job: Job, params: dict[str, Any]) -> Override:
    require_answer(job)
    if "temperature" not in job.program.batch_types:
        raise nothing_to_do("the answer is not drawn: it has no temperature")
    return Cooler()


ATTACK = Attack("other-sampler", KIND, "the answer is drawn at another temperature", build)
