"""Writing a job: from a captured step, records and settings to a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.job import JobCommitment2
from tallystick.commit.stream import RUN_ON, SHUFFLED
from tallystick.commit.tensor import Array
from tallystick.devices.environment import exact_environment
from tallystick.disk.anew import refuse_taken
from tallystick.errors import UsageError
from tallystick.job.columns import Data, schema_for, taken
from tallystick.job.first_steps import first_step_reason
from tallystick.job.job import JOB_DIRECTORY, Job
from tallystick.job.one_stream import End, with_short
from tallystick.job.parts import (
    STEP,
    TRAIN,
    Records,
    batch_size_of,
    validation_sentence,
    with_validation,
)
from tallystick.job.scalars import Schedule, derived_note, scalar_tables
from tallystick.job.writing import (
    check_state,
    commitment_of,
    evaluation_of,
    fills_of,
    short_evaluation,
    write_job,
)
from tallystick.numerics.contracts import find_contract
from tallystick.program.ir import Program
from tallystick.program.state import State
from tallystick.program.validation import StopRule

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep

# GPT-2 of 124M parameters would take some 10 GB and a minute for what a small one shows as well.
RECIPE_COMPARED = 1 << 22


@exact_environment()
def save_job(
    captured: CapturedStep,
    directory: str | Path,
    data: Data,
    *,
    steps: int,
    seed: int = 0,
    order_seed: int | None = None,
    batch_size: int | None = None,
    checkpoint_interval: int | None = None,
    schedules: Mapping[str, Schedule] | Any | None = None,
    initial_state: Mapping[str, Array] | None = None,
    order: str = SHUFFLED,
    epoch_end: End = RUN_ON,
    short: CapturedStep | None = None,
    validation: Data | None = None,
    eval_program: Program | None = None,
    eval_short: Program | None = None,
    evaluate_every: int = 0,
    stop_rule: StopRule | None = None,
    forward_program: Program | None = None,
    stop_on_non_finite: bool = True,
    recipe: Mapping[str, Any] | None = None,
    about: Mapping[str, str] | None = None,
    compare_first_step: bool = True,
    overwrite: bool = False,
) -> Job:
    """Write the job that trains `captured` on `data`; the directory's manifest comes last. A
    job that is there already is refused, or with `overwrite` replaced when the new one is whole.

    `data` maps each batch tensor's name to an array (N, *shape of one record), numpy or torch; or
    it is a frozen data set or its directory, whose records are hashed once more and taken over
    without being in memory. The same holds for `validation`.
    `seed` keys the random numbers (dropout) and, unless `order_seed` is given, the data's
    order. `schedules` gives a table of `steps` numbers (or a function of the step, or a torch
    scheduler) for each that the optimizer names; or it is a scheduler over the captured torch
    optimizer.

    `order` is "shuffled" or "sequential". `epoch_end` is "run on", "drop" or "short", or the number
    of records that an epoch reads (COMMITMENTS 7.7); `short` is the captured step of a last batch
    that has fewer records. With `validation` and `eval_program` (of `capture_eval`), the validation
    loss is printed every `evaluate_every` steps. With `stop_rule` it is part of the run, which
    commits to it and may end by it (PROGRAM 7). `eval_short` is the evaluation
    of a last batch of fewer records; then the pass reads every record (PROGRAM 7.4).

    The first step is compared with the module and torch's optimizer in float64 (PROGRAM 5.9), that
    of a recipe up to `RECIPE_COMPARED` parameters: its module is ours, and the same one whatever
    its size. The comparison needs the memory and the time of a step in float64. Without
    `compare_first_step`, or where the module cannot run so, the job's `about` says it.

    Raises UsageError for data, state or schedules that do not fit the program, or a first step
    that differs from the module's beyond the threshold; UnsupportedOperatorError for an operator
    that the contract's published form cannot run; StorageError where the directory cannot be
    written.
    """
    directory = Path(directory)
    if not overwrite:
        refuse_taken(directory, JOB_DIRECTORY)
    find_contract(captured.program.contract).check_program(captured.program)
    if steps < 1:
        raise UsageError(f"A job of {steps} steps trains nothing.", "Give at least one step.")
    program = captured.program
    columns, kept = taken(data, "data")
    schema = schema_for(captured.batch, columns)
    size = batch_size_of(captured.batch)
    if batch_size is not None and batch_size != size:
        raise UsageError(
            f"The step was captured with batches of {size}, not {batch_size}.",
            "Capture again with an example batch of the size you want.",
        )
    state = initial_state if initial_state is not None else captured.initial_state
    if state is None:
        raise UsageError(
            "The module was captured without weights.",
            "Pass initial_state=captured.state_for(weights), or capture a module that has some.",
        )
    check_state(state, program.state_types)
    order_seed = seed if order_seed is None else order_seed
    records = Records(TRAIN, schema, columns, order_seed, kept, order)
    if short is not None:
        schema_for(short.batch, columns)
        check_state(state, short.program.state_types)
    parts = with_short(STEP, captured, short, records, epoch_end, steps)
    evaluation, held = evaluation_of(schema, validation, eval_program, evaluate_every)
    if stop_rule is not None:
        if evaluation is None or eval_program is None or held is None:
            raise UsageError(
                "Committed validation needs held-out records.", "Pass validation=... too."
            )
        of, every = evaluation.batch_size, evaluation.every
        last = None if eval_short is None else short_evaluation(eval_short, held, of)
        parts = with_validation(parts, eval_program, held, of, every, stop_rule, steps, last)
        evaluation, held = None, None
    first_values = {**state, **parts.slots}
    types = parts.programs[0].program.state_types
    slots = {name: np.asarray(first_values[name], order="C") for name in types}
    scalars = scalar_tables(captured.scalars, schedules, steps)
    commitment = commitment_of(
        parts, State(slots).root(), scalars, steps, seed, checkpoint_interval, stop_on_non_finite
    )
    notes = {**(about or {}), **captured.names.notes(), **derived_note(captured.scalars)}
    if captured.not_followed:
        notes["not followed"] = captured.not_followed
    if stop_rule is not None and isinstance(commitment, JobCommitment2):
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
    for number, step in enumerate([captured, short][: parts.training]):
        if step is None or step.first_step is None:
            continue
        reason: str | None = "switched off by the author"
        if recipe and of_model > RECIPE_COMPARED:
            reason = f"a recipe of more than {RECIPE_COMPARED} parameters"
        elif compare_first_step:
            reason = first_step_reason(job, parts, number, step, slots)
        if reason is not None:
            said = f"first step of {parts.programs[number].name}" if number else "first step"
            notes[said] = f"not compared with the module: {reason}"
    beside = None if evaluation is None else (held, eval_program)
    return write_job(job, parts, slots, beside, forward_program, overwrite)
