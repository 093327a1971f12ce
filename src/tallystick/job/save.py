"""Writing a job to a directory: from captured steps, records and settings; also where the steps
have programs of their own, found for them (PROGRAM 5.21, 5.25).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.data import batch_columns
from tallystick.commit.job import JobCommitment2
from tallystick.commit.stream import RUN_ON, SHUFFLED
from tallystick.commit.tensor import Array
from tallystick.devices.environment import exact_environment
from tallystick.disk.manifest import refuse_taken
from tallystick.errors import UsageError
from tallystick.job.job import JOB_DIRECTORY, Job
from tallystick.job.one_state import (
    by_step,
    by_turns,
    check_beside,
    check_rounds,
    notes_together,
    numbers_with_short,
    rates_by_program,
    scalars_together,
    state_together,
    widened,
    with_short,
)
from tallystick.job.parts import STEP, Parts, validation_sentence
from tallystick.job.reading import Data, End, HeldOut, Reading, taken
from tallystick.job.scalars import BY_STEP, Schedule, scalar_tables
from tallystick.job.writing import check_state, commitment_of, fills_of, write_job
from tallystick.numerics.contracts import find_contract
from tallystick.program.ir import Program
from tallystick.program.state import State

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep
    from tallystick.program.capture.by_step import StepPrograms
    from tallystick.program.capture.later import Later

# GPT-2 of 124M parameters would take some 10 GB and a minute for what a small one shows as well.
RECIPE_COMPARED = 1 << 22

# Of one program, or of programs in one stream: a table for each name, or a scheduler.
Rates = Mapping[str, Schedule] | Any
# By program; of one program or one stream those of that.
Schedules = Mapping[str, Rates] | Rates


@exact_environment()
def save_job(
    programs: CapturedStep | Mapping[str, CapturedStep],
    directory: str | Path,
    data: Data | None,
    *,
    steps: int,
    schedule: Sequence[tuple[str, int]] | None = None,
    programs_of_steps: Sequence[str] | None = None,
    short: CapturedStep | None = None,
    own_data: Mapping[str, Data] | None = None,
    order: str = SHUFFLED,
    epoch_end: End = RUN_ON,
    seed: int = 0,
    order_seed: int | None = None,
    checkpoint_interval: int | None = None,
    schedules: Schedules | None = None,
    initial_state: Mapping[str, Array] | None = None,
    held: HeldOut | None = None,
    forward_program: Program | None = None,
    stop_on_non_finite: bool = True,
    recipe: Mapping[str, Any] | None = None,
    about: Mapping[str, str] | None = None,
    compare_first_step: bool = True,
    overwrite: bool = False,
) -> Job:
    """Write the job whose `programs` make its `steps` training steps; the manifest comes last. A
    job that is there already is refused, or with `overwrite` replaced when the new one is whole.

    One captured step is a schedule of one; `short` is then that of an epoch's last batch, where it
    has fewer records, and `initial_state` may take the place of the captured one. Of several by
    name, `schedule` has pairs of a name and a number of steps, which are repeated; None is one step
    of each in turn. Each goes through its records in a stream of its own. With `programs_of_steps`
    in its place, the name of the program of each step, the programs go through `data` together: one
    stream of batches, of which each program has the size, and one optimizer and table of rates.

    `data` maps each batch tensor's name to an array (N, *shape of one record), numpy or torch; or
    it is a frozen data set or its directory, whose records are hashed once more and taken over
    without being in memory. `own_data` has other records by program; a program whose batch is empty
    reads none. `order` is "shuffled" or "sequential". `epoch_end` is "run on", "drop" or "short",
    or the number of records that an epoch reads (COMMITMENTS 7.7).

    `seed` keys every program's random numbers (dropout) and, unless `order_seed` is given, the
    order of every data set. `schedules` gives a table of a number for each step (or a function of
    the step, or a torch scheduler) for each that the optimizer names; or it is a scheduler over the
    captured torch optimizer. Programs with streams of their own have such schedules by program. The
    validation loss of `held` is printed, or part of the run.

    The first step of each program, from state[0], is compared with the module and torch's optimizer
    in float64 (PROGRAM 5.9), that of a recipe up to `RECIPE_COMPARED` parameters: its module is
    ours, and the same one whatever its size. The comparison needs the memory and the time of a step
    in float64. Without `compare_first_step`, or where the module cannot run so, the job's `about`
    says it.

    Raises UsageError for data, state or schedules that do not fit the programs, for programs that
    do not fit together, or a first step that differs from the module's beyond the threshold;
    UnsupportedOperatorError for an operator that the contract's published form cannot run;
    StorageError where the directory cannot be written.
    """
    directory = place_of(directory, steps, overwrite)
    order_seed = seed if order_seed is None else order_seed
    reading = Reading(data, own_data or {}, order_seed, order, epoch_end)
    alone = None if isinstance(programs, Mapping) else programs
    named = programs if isinstance(programs, Mapping) else {STEP: programs}
    trained: Mapping[str, CapturedStep | None] = named
    if alone is not None:
        find_contract(alone.program.contract).check_program(alone.program)
        state = _state_of(alone, short, initial_state)
        parts = with_short(alone, short, reading, steps)
        trained = dict(zip((part.name for part in parts.programs), (alone, short), strict=False))
    else:
        check_beside(named)
        state = state_together(named, programs_of_steps is not None)
        wide = widened(named, state)
        if programs_of_steps is None:
            parts = by_turns(wide, schedule, reading)
            if held is not None:
                check_rounds(parts, held.every)
        elif schedule is not None or own_data:
            raise UsageError(
                "Programs of one stream cannot have schedules or data of their own.",
                "Leave out schedule and own_data, or programs_of_steps.",
            )
        else:
            parts = by_step(wide, programs_of_steps, reading, steps)
            schedules = rates_by_program(named, schedules)
    evaluation, beside = None, None
    if held is not None:
        evaluation, records = held.checked(None if alone is None else parts.data[0].schema)
        if held.rule is None:
            beside = records, held.evaluation
        else:
            parts, evaluation = held.committed(parts, held.rule, records, steps), None
    values = {**state, **parts.slots}
    types = parts.programs[0].program.state_types
    slots = {name: np.asarray(values[name], order="C") for name in types}
    if alone is not None:
        scalars = scalar_tables(alone.scalars, schedules, steps)
    else:
        scalars = scalars_together(parts, named, schedules or {}, steps)
    commitment = commitment_of(
        parts, State(slots).root(), scalars, steps, seed, checkpoint_interval, stop_on_non_finite
    )
    notes = {**(about or {}), **notes_together(named.values())}
    if alone is not None and alone.not_followed:
        notes["not followed"] = alone.not_followed  # in the order of the trace
    if held is not None and evaluation is None and isinstance(commitment, JobCommitment2):
        notes["validation"] = validation_sentence(commitment)
    job = Job(
        directory,
        commitment,
        scalars,
        tuple(each.schema for each in parts.data),
        fills_of(slots),
        dict(recipe) if recipe else None,
        evaluation,
        forward_program.digest() if forward_program else None,
        notes,
    )
    of_model = sum(a.size for n, a in slots.items() if n.startswith("param."))
    for number, (name, step) in enumerate(trained.items()):
        if step is None or step.first_step is None:
            continue
        reason: str | None = "switched off by the author"
        if recipe and of_model > RECIPE_COMPARED:
            reason = f"a recipe of more than {RECIPE_COMPARED} parameters"
        elif compare_first_step:
            reason = first_step_reason(job, parts, number, step, slots)
        if reason is not None:
            said = "first step" if step is alone else f"first step of {name}"
            notes[said] = f"not compared with the module: {reason}"
    return write_job(job, parts, slots, beside, forward_program, overwrite)


def place_of(directory: str | Path, steps: int, overwrite: bool) -> Path:
    """The directory of a new job. Raises UsageError where one is there, and for no steps: what can
    be refused before steps are traced or records are read."""
    directory = Path(directory)
    if not overwrite:
        refuse_taken(directory, JOB_DIRECTORY)
    if steps < 1:
        raise UsageError(
            f"steps is {steps}, so the job would train nothing.", "Give at least one step."
        )
    return directory


def _state_of(
    step: CapturedStep, short: CapturedStep | None, given: Mapping[str, Array] | None
) -> Mapping[str, Array]:
    """state[0] of a job of one step. Raises UsageError."""
    state = step.initial_state if given is None else given
    if state is None:
        raise UsageError(
            "The module was captured without weights.",
            "Pass initial_state=captured.state_for(weights), or capture a module that has weights.",
        )
    for each in (step, short):
        if each is not None:
            check_state(state, each.program.state_types)
    return state


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
