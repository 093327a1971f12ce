"""Which records a step of a job, or some of its micro-batches, read (COMMITMENTS 7.6.4, 7.7.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tallystick.commit.data import batch_columns
from tallystick.commit.tensor import check_canonical
from tallystick.commit.timetable import Timetable
from tallystick.errors import UsageError
from tallystick.job.job import Job


@dataclass(frozen=True)
class StepRecords:
    """The batch of one step: the records `numbers`, in order (int64, shape (batch,)), of the job's
    data set `data`. `program` is the program that the step executes.

    For a step that reads no batch `data` is None, and there are no numbers.
    """

    program: str
    data: str | None
    numbers: npt.NDArray[np.int64]


def step_records(timetable: Timetable, steps: int, step: int) -> StepRecords:
    """The records of step `step`, from 0, of a run of `steps` steps.

    Raises UsageError for a step that the run has not.
    """
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < steps:
        raise UsageError(
            f"The job has no step {step!r}.",
            f"Choose a step from 0 to {steps - 1}. The steps of validation count too.",
        )
    at = timetable.at(step)
    data = timetable.data_of(at.program)
    name = timetable.programs[at.program].name
    if data is None:
        return StepRecords(name, None, np.empty(0, np.int64))
    return StepRecords(name, data.name, timetable.indices(at))


def records_of(job: Job, step: int, parts: range) -> dict[str, np.ndarray]:
    """The records of the consecutive micro-batches `parts` of a step, empty where its program reads
    none. Raises CounterpartyError for a tensor that is not canonical."""
    timetable = job.commitment.timetable
    occasion = timetable.at(step)
    entry = timetable.programs[occasion.program]
    if entry.data is None:
        return {}
    rows = entry.rows
    indices = timetable.indices(occasion)[parts.start * rows : parts.stop * rows]
    columns = batch_columns(job.columns_of[entry.data], indices)
    for name, array in columns.items():
        check_canonical(array, f"batch tensor {name}")
    return columns
