"""A poisoned batch, shared by several attacks."""

from __future__ import annotations

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override

from ._shared import nothing_to_do


class Poison(Override):
    """Replaces the first record of every batch by its last one, from step `first` on.

    Raises UsageError for a job whose batches are of one record.
    """

    def __init__(self, job: Job, first: int) -> None:
        if job.commitment.timetable.programs[0].batch_size < 2:
            raise nothing_to_do("its batches are of one record")
        self.first = first

    def batch(self, step: int, batch: dict[str, Array]) -> None:
        if step >= self.first:
            for array in batch.values():
                array[0] = array[-1]
