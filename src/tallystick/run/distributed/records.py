"""The records of some micro-batches of a step."""

from __future__ import annotations

import numpy as np

from tallystick.commit.data import batch_columns
from tallystick.commit.tensor import check_canonical
from tallystick.job.job import Job


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
