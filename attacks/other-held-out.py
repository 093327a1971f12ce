"""Other held-out records: the validation is made on records of the training set.

Gain: a model that has learnt its records by heart validates well. How: each pass reads the first
records of the training set in the place of the held-out ones. Caught: the held-out records have a
data root of their own in the job, and the referee compares the first differing element with the
client's record (case 2c).
"""

from __future__ import annotations

from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.job.parts import VALIDATE
from tallystick.run.cheats.override import Override

from ._shared import Attack, nothing_to_do, program_of, steps_of


class Learnt(Override):
    def __init__(self, job: Job) -> None:
        self.job = job

    def batch(self, step: int, batch: dict[str, Array]) -> None:
        if program_of(self.job, step) == VALIDATE:
            for name, array in batch.items():
                array[...] = self.job.columns[name][: len(array)]


def build(job: Job, params: dict[str, Any]) -> Override:
    timetable = job.commitment.timetable
    entry = timetable.programs[timetable.at(steps_of(job, VALIDATE)[0]).program]
    same = entry.data is not None and job.schemas[entry.data] == job.schema
    if not same or timetable.data[0].record_count < entry.batch_size:
        raise nothing_to_do("its training records do not make a batch of the pass")
    return Learnt(job)


ATTACK = Attack("other-held-out", "validation", "validation on records of the training set", build)
