"""A party that keeps silent: a poisoned run that stops answering.

Gain: as a refusal, without a signature under it. How: data poisoning, and no answer to the query
for the nodes. Caught: silence forfeits (clause 2.10). The forfeit rests on the referee's word: a
judge that trusts the referee believes it.
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.protocol.queries import Nodes
from tallystick.prover.local import SilenceError
from tallystick.run.cheats.override import Override

from ._poison import Poison
from ._shared import MIDDLE, Attack


class Silent(Poison):
    def answer(self, query: object, body: object) -> object:
        if isinstance(query, Nodes):
            raise SilenceError("This party keeps silent.")
        return body


def build(job: Job, params: dict[str, Any]) -> Override:
    return Silent(job, params["step"])


ATTACK = Attack("silent", "answers", "a poisoned run that stops answering", build, {"step": MIDDLE})
