"""A lie in an input digest: the node's record names inputs that never existed.

Gain: the false output looks right for the inputs it names. How: the record of a falsified node has
another digest for its first input. Caught: the referee knows the source of the input from its own
program, and both parties have stated that value's digest before (cases 2a to 2d).
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
    return replace(record, inputs=(bytes([7]) * 32, *record.inputs[1:]))


def build(job: Job, params: dict[str, Any]) -> Override:
    return wrong_record(job, params, change)


ATTACK = Attack(
    "lie-input-digest",
    "records",
    "a node's record names an input that never was",
    build,
    {"step": MIDDLE, "node": -1},
)
