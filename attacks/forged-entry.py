"""A forged entry: the log says that an element may be rounded up, and the run rounds it up.

Gain: the cheat pushes any weight in any direction, one step of the grid at a time, as often as it
likes, with a log that seems to explain it. How: in step `step` the first elements of the first
output of node `node` are one step of the grid larger, and each has an entry that says so. Caught:
no kernel within the bound leads to that boundary, so the entry does not change the element's value.
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._logs import LogLie, bits_of_log, logged_node
from ._shared import MIDDLE, Attack


def build(job: Job, params: dict[str, Any]) -> Override:
    lie = LogLie(params, logged_node(job, params["node"]), bits_of_log(job), params["count"])
    lie.logs = lie.moves = True
    return lie


ATTACK = Attack(
    "forged-entry",
    "log",
    "rounds elements up and forges the entries that allow it",
    build,
    {"step": MIDDLE, "node": -1, "count": 16},
)
