"""A value that no kernel gives, without an entry in the log.

Gain: as forged-entry, but an auditor that only checks the entries sees no lie. How: in step
`step` the first elements of the first output of node `node` are one step of the grid larger.
Caught: an element without an entry is the exact sum, rounded (NUMERICS 14.5), and a block of the
log shows that there is no entry.
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._logs import LogLie, bits_of_log, logged_node
from ._shared import MIDDLE, Attack


def build(job: Job, params: dict[str, Any]) -> Override:
    lie = LogLie(params, logged_node(job, params["node"]), bits_of_log(job), params["count"])
    lie.moves = True
    return lie


ATTACK = Attack(
    "impossible-unlogged-value",
    "log",
    "rounds elements up without a word in the log",
    build,
    {"step": MIDDLE, "node": -1, "count": 16},
)
