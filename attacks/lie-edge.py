"""A lie in an edge: the record says that the node reads another value than the program wires to it.

Gain: as a lie in an input digest, with a digest that does exist. How: the record of a falsified
node has its inputs' digests in another order. Caught: the referee takes the edges from its own
program (cases 2a to 2d).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override
from tallystick.run.execute.nodes import NodeDigests

from ._records import wrong_record
from ._shared import MIDDLE, Attack


def change(record: NodeDigests) -> NodeDigests:
    return replace(record, inputs=record.inputs[::-1])


def build(job: Job, params: dict[str, Any]) -> Override:
    return wrong_record(job, params, change)


ATTACK = Attack(
    "lie-edge",
    "records",
    "a node is said to read other values",
    build,
    {"step": MIDDLE, "node": -1},
)
