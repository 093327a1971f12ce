"""Writing a job whose steps have the programs that were found for them (PROGRAM 5.21, 5.25)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.devices.environment import exact_environment
from tallystick.job.columns import Data, taken
from tallystick.job.job import Job
from tallystick.job.parts import STEP
from tallystick.job.reading import End
from tallystick.job.save import place_of, save_job
from tallystick.job.scalars import BY_STEP
from tallystick.job.streams import numbers_with_short

if TYPE_CHECKING:
    from tallystick.program.capture.by_step import StepPrograms
    from tallystick.program.capture.later import Later

_BY_STEP = "as the loss decides by the number of the step, for the {} steps of this job"


def about_steps(found: StepPrograms) -> dict[str, str]:
    """What a job says of programs that are those of its steps alone."""
    return {BY_STEP: _BY_STEP.format(len(found.of_steps))} if found.decides else {}


def save_by_step(
    directory: str | Path, found: StepPrograms, data: Data | None, **given: Any
) -> Job:
    """Write the job of the steps that were found; `given` and errors as of `save_job`."""
    names = [STEP, *(f"{STEP}-{n + 2}" for n in range(len(found.programs) - 1))]
    return save_job(
        dict(zip(names, found.programs, strict=True)),
        directory,
        data,
        steps=len(found.of_steps),
        programs_of_steps=[names[n] for n in found.of_steps],
        about=about_steps(found),
        **given,
    )


@exact_environment()
def save_later(
    later: Later,
    directory: str | Path,
    data: Data,
    *,
    steps: int,
    epoch_end: End,
    short: Later | None,
    overwrite: bool,
    **given: Any,
) -> Job:
    """Write the job of a step whose programs are those of `steps` steps, which are traced now.

    Arguments as of `save_job`. Raises as that, and as `Later.settled`.
    """
    place_of(directory, steps, overwrite)
    columns, _ = taken(data, "data")
    records = len(next(iter(columns.values())))
    of_short = None if short is None else short.batch_size
    numbers = numbers_with_short(later.batch_size, of_short, records, epoch_end, steps)
    ends = len(numbers) if numbers[-1] else 0
    found = later.settled(steps, short if ends else None, ends)
    given |= {"epoch_end": epoch_end, "overwrite": overwrite}
    if len(found.programs) > 1:
        return save_by_step(directory, found, data, **given)
    (step,) = found.programs
    return save_job(step, directory, data, steps=steps, about=about_steps(found), **given)
