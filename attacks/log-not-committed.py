"""A log that was not committed: the chain has the digest of another one.

Gain: the cheat can make up its log once it knows the audit's questions. How: the log chain gets a
made-up digest at step `step`. Caught: the log that the cheat opens does not give the chain in the
state that it has committed to.
"""

from __future__ import annotations

from typing import Any

from tallystick.commit.encoding import sha256
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override
from tallystick.run.logs.reader import keeps_log

from ._shared import MIDDLE, Attack, nothing_to_do


class OtherChain(Override):
    def __init__(self, at: int) -> None:
        self.at = at

    def log_digest(self, step: int, digest: bytes) -> bytes:
        return sha256(b"a log to come") if step == self.at else digest


def build(job: Job, params: dict[str, Any]) -> Override:
    if not keeps_log(job):
        raise nothing_to_do("its contract keeps no logs")
    return OtherChain(params["step"])


ATTACK = Attack(
    "log-not-committed", "log", "commits to another log than it gives", build, {"step": MIDDLE}
)
