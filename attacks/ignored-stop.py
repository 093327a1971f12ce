"""A run that goes on after its stop: more steps than the validation allows.

Gain: a provider that is paid by the step works longer; or a later model suits it better. How: the
run ignores `control.stop` and goes on to the job's last step. Caught: the slot is true in a state
on which both runs agree (clause 4.11).
"""

from __future__ import annotations

from typing import Any

from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import Attack, nothing_to_do


class On(Override):
    def goes_on(self) -> bool:
        return True


def build(job: Job, params: dict[str, Any]) -> Override:
    if not job.commitment.stop_on_slot:
        raise nothing_to_do("no slot stops a run of the job")
    return On()


ATTACK = Attack("ignored-stop", "validation", "the run goes on after the slot that ends it", build)
