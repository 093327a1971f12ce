"""An early stop: the answer ends with a token that the model did not draw.

Gain: fewer tokens to compute than were paid for. How: the last token of the answer is another one
than the sampler's. Caught: the token is not what the program makes of its operands (case 3), in at
most 256 terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick.answers.job import TOKENS
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from .._shared import Attack
from ._shared import KIND, AtNode, slot_node


class Stop(AtNode):
    """Puts a token in the place of the last one that is drawn: by default the last one's number,
    in another bit."""

    def __init__(self, index: int, token: int, live: int) -> None:
        super().__init__(index, self._put)
        self.token, self.live = token, live

    def _put(self, outputs: Sequence[Array]) -> None:
        last = self.live - 1
        outputs[0][last] = self.token if self.token >= 0 else int(outputs[0][last]) ^ 1


def build(job: Job, params: dict[str, Any]) -> Override:
    index = slot_node(job, TOKENS)
    live = int(np.count_nonzero(job.columns["live"][0]))
    return Stop(index, params["token"], live)


ATTACK = Attack(
    "early-stop", KIND, "the answer ends with a token that was not drawn", build, {"token": -1}
)
