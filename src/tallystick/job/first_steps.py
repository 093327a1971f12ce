"""The first step of each program of a new job, beside the module that it was captured from
(PROGRAM 5.9)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from tallystick.commit.data import batch_columns
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.job.parts import Parts

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep


def first_step_reason(
    job: Job, parts: Parts, number: int, step: CapturedStep, slots: Mapping[str, Array]
) -> str | None:
    """None where the first step of program `number`, from state[0], agrees with the module of
    `step`; a reason where it could not be compared. Raises UsageError beyond the threshold."""
    if step.first_step is None:
        return None
    c, timetable = job.commitment, job.commitment.timetable
    begins = accumulate((turn.steps for turn in timetable.turns), initial=0)
    turns = zip(begins, timetable.turns, strict=False)
    first = next(begin for begin, turn in turns if turn.program == number)
    at, part = timetable.at(first), parts.programs[number]
    batch: dict[str, Array] = {}
    if part.data is not None:
        batch = batch_columns(dict(parts.data[part.data].columns), timetable.indices(at))
    tables = {name: job.scalars[name] for name in step.program.scalar_names}
    row = timetable.row(at)
    return step.first_step.compare(
        c.contract,
        {name: slots[name] for name in step.program.state_types},
        batch,
        {name: t if isinstance(t, float) else t[row] for name, t in tables.items()},
        c.random_key(first),
    )
