"""A lie in the node count: the cheat's step has more nodes than the program.

Gain: room for a node that is not in the program. How: a falsified output, and a node tree of one
leaf more. Caught: the number of nodes is the program's (case 1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tallystick.job.job import Job
from tallystick.protocol.bodies import NodesBody
from tallystick.run.cheats.override import Override

from ._records import WrongRecord
from ._shared import MIDDLE, PRODUCTS, Attack, node_of


class Count(WrongRecord):
    def answer(self, query: object, body: object) -> object:
        return replace(body, count=body.count + 1) if isinstance(body, NodesBody) else body


def build(job: Job, params: dict[str, Any]) -> Override:
    index = node_of(job, params["node"], *PRODUCTS, step=params["step"])
    return Count(params["step"], index, lambda record: record)


ATTACK = Attack(
    "lie-node-count",
    "records",
    "a step with one node too many",
    build,
    {"step": MIDDLE, "node": -1},
)
