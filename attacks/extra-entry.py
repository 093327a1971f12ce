"""Entries that were never due: the run is right, and its log is wrong.

Gain: a log full of entries hides the few that matter, and makes choices look common. How: in step
`step` the first elements of the first output of node `node` have entries that say "up"; the values
stay. Caught: an auditor's own log has only entries that the rules allow, so the log chains differ.
The referee takes the first entry that only one log has, and shows that no kernel can have led to
it.
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._logs import LogLie, bits_of_log, logged_node
from ._shared import MIDDLE, Attack


def build(job: Job, params: dict[str, Any]) -> Override:
    lie = LogLie(params, logged_node(job, params["node"]), bits_of_log(job), params["count"])
    lie.logs = True
    return lie


ATTACK = Attack(
    "extra-entry",
    "log",
    "adds forged entries to the log, and follows none",
    build,
    {"step": MIDDLE, "node": -1, "count": 64},
)
