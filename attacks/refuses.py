"""A party that refuses: a poisoned run that answers "unable" at the node records.

Gain: the cheat hopes that no answer is no proof. How: data poisoning, and *unable* as the answer
to every query for a node record. Caught: a party that commits to a run keeps the files that repeat
it (clause 2.8).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.protocol.queries import NodeRecord
from tallystick.run.cheats.override import Override

from ._poison import Poison
from ._shared import MIDDLE, Attack


class Refuses(Poison):
    def answer(self, query: object, body: object) -> object:
        return None if isinstance(query, NodeRecord) else body


def build(job: Job, params: dict[str, Any]) -> Override:
    return Refuses(job, params["step"])


ATTACK = Attack(
    "refuses", "answers", "a poisoned run that will not open a node", build, {"step": MIDDLE}
)
