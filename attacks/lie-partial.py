"""A lie that goes deep: a falsified output whose parts are falsified to fit.

Gain: a referee that only looked at the output and its parts would find them consistent. How: the
cheat doubles the loss of step `step`. When the referee asks for its parts, the cheat doubles the
last stated value too, and so on down. Caught: the referee executes the terms of the last stated
value (clauses 6.5 to 6.9).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.job.job import Job
from tallystick.protocol.bodies import BytesBody
from tallystick.protocol.queries import Values
from tallystick.run.cheats.override import Override

from ._records import WrongRecord
from ._shared import MIDDLE, Attack, node_of


class Deep(WrongRecord):
    def answer(self, query: object, body: object) -> object:
        if not isinstance(query, Values) or not isinstance(body, BytesBody) or len(body.data) < 4:
            return body
        last = np.frombuffer(body.data[-4:], np.float32)[0]
        return BytesBody(body.data[:-4] + np.float32(last * np.float32(2)).tobytes())


def build(job: Job, params: dict[str, Any]) -> Override:
    index = node_of(job, params["node"], "tallystick.cross_entropy", step=params["step"])
    return Deep(params["step"], index, lambda record: record)


ATTACK = Attack(
    "lie-partial",
    "numbers",
    "a false loss with parts made to fit",
    build,
    {"step": MIDDLE, "node": -1},
)
