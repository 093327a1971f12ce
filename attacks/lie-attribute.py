"""A lie in an attribute: the record says that the node computed another operation.

Gain: the false output is right for the attributes in the record. How: the record of a falsified
node has other attribute bytes. Caught: the referee takes operator and attributes from its own
program (case 1).
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
    return replace(record, attributes=record.attributes + b"alpha=2")


def build(job: Job, params: dict[str, Any]) -> Override:
    return wrong_record(job, params, change)


ATTACK = Attack(
    "lie-attribute",
    "records",
    "a node's record has other attributes",
    build,
    {"step": MIDDLE, "node": -1},
)
