"""Writing a job: from a captured step, records and settings to a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.data import DataSchema, batch_columns
from tallystick.commit.job import (
    Commitment,
    JobCommitment,
    JobCommitment2,
    ScalarTable,
    scalars_digest,
)
from tallystick.commit.tensor import Array
from tallystick.disk.anew import refuse_taken, written_anew
from tallystick.disk.files import make_directory, write_file
from tallystick.disk.manifest import manifest_bytes
from tallystick.disk.tensorfile import write_tensors
from tallystick.errors import CorruptFileError, CounterpartyError, UsageError
from tallystick.job.columns import Data, schema_for, taken
from tallystick.job.job import (
    EVAL_PROGRAM,
    FORWARD_PROGRAM,
    JOB_DIRECTORY,
    MANIFEST,
    STATE0,
    VALIDATION,
    Evaluation,
    Job,
    check_program_fits,
)
from tallystick.job.job_file import job_manifest, load_job
from tallystick.job.parts import (
    HELD_OUT,
    STEP,
    TRAIN,
    Part,
    Parts,
    Records,
    interval_for,
    validation_sentence,
    with_validation,
)
from tallystick.job.scalars import Schedule, derived_note, scalar_tables
from tallystick.kernels.environment import exact_environment
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.state import State, check_slots
from tallystick.program.validation import StopRule
from tallystick.rounding.published.stock import check_program

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep

# GPT-2 of 124M parameters would take some 10 GB and a minute for what a small one shows as well.
RECIPE_COMPARED = 1 << 22


def _batch_size(batch: Mapping[str, TensorType]) -> int:
    sizes = {t.shape[0] if t.shape else 0 for t in batch.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise UsageError(
            "The captured batch's tensors have different first axes.",
            "Capture with tensors of shape (batch, ...), the same batch in all.",
        )
    return sizes.pop()


def _repeated_value(array: Array) -> float | None:
    """The value that fills a whole float tensor of more than one element, if one value does."""
    if array.dtype.kind != "f" or array.size < 2:
        return None
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    if (bits != bits[0]).any() or not np.isfinite(array.reshape(-1)[0]):
        return None
    return float(array.reshape(-1)[0])


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
    validation: Data | None = None,
    eval_program: Program | None = None,
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
    optimizer. With `validation` and `eval_program` (of `capture_eval`), the validation
    loss is printed every `evaluate_every` steps. With `stop_rule` it is part of the run, which
    commits to it and may end by it (PROGRAM 7).

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
    if find_contract(captured.program.contract).form == "published":
        check_program(captured.program)
    if steps < 1:
        raise UsageError(f"A job of {steps} steps trains nothing.", "Give at least one step.")
    program = captured.program
    columns, kept = taken(data, "data")
    schema = schema_for(captured.batch, columns)
    size = _batch_size(captured.batch)
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
    try:
        check_slots(state, program.state_types, "initial state")
    except CounterpartyError as error:
        raise UsageError(
            error.message, "Every weight needs the captured dtype and shape."
        ) from None
    order_seed = seed if order_seed is None else order_seed
    records = Records(TRAIN, schema, columns, order_seed, kept)
    parts = Parts((Part(STEP, program, 0, size, captured.micro_batches or 1),), (records,))
    evaluation, held = _evaluation(schema, validation, eval_program, evaluate_every)
    if stop_rule is not None:
        if evaluation is None or eval_program is None or held is None:
            raise UsageError(
                "Committed validation needs held-out records.", "Pass validation=... too."
            )
        of, every = evaluation.batch_size, evaluation.every
        parts = with_validation(parts, eval_program, held, of, every, stop_rule)
        evaluation, held = None, None
    first_values = {**state, **parts.slots}
    types = parts.programs[0].program.state_types
    slots = {name: np.asarray(first_values[name], order="C") for name in types}
    scalars = scalar_tables(captured.scalars, schedules, steps)
    try:
        commitment = _commitment(
            parts,
            State(slots).root(),
            scalars,
            steps,
            seed,
            checkpoint_interval,
            stop_on_non_finite,
        )
    except UsageError as error:
        raise UsageError(f"The job cannot be made: {error.message}", error.next_action) from None
    notes = {**(about or {}), **captured.names.notes(), **derived_note(captured.scalars)}
    if stop_rule is not None and isinstance(commitment, JobCommitment2):
        held_out = commitment.timetable.data[1].record_count
        notes["validation"] = validation_sentence(commitment, held_out)
    if captured.first_step is not None:
        size_of_model = sum(a.size for n, a in slots.items() if n.startswith("param."))
        not_compared: str | None = "switched off by the author"
        if recipe and size_of_model > RECIPE_COMPARED:
            not_compared = f"a recipe of more than {RECIPE_COMPARED} parameters"
        elif compare_first_step:
            indices = commitment.timetable.indices(commitment.timetable.at(0))
            first = {n: t if isinstance(t, float) else t[0] for n, t in scalars.items()}
            own = {name: slots[name] for name in program.state_types}
            not_compared = captured.first_step.compare(
                program.contract, own, batch_columns(columns, indices), first, (seed, 0)
            )
        if not_compared is not None:
            notes["first step"] = f"not compared with the module: {not_compared}"
    fills = {n: v for n, a in slots.items() if (v := _repeated_value(a)) is not None}
    job = Job(
        directory,
        commitment,
        scalars,
        tuple(each.schema for each in parts.data),
        fills,
        dict(recipe) if recipe else None,
        evaluation,
        forward_program.digest() if forward_program else None,
        notes,
    )
    _refuse_unfit(job, tuple(part.program for part in parts.programs))
    with written_anew(directory, JOB_DIRECTORY, overwrite) as place:
        make_directory(place / "data")
        for number, part in enumerate(parts.programs):
            text = part.program.text().encode("ascii")
            write_file(place / job.program_file(number), [text])
        write_tensors(place / STATE0, {n: a for n, a in slots.items() if n not in fills})
        for number, data_set in enumerate(parts.data):
            data_set.write(place / job.data_file(number))
        if held is not None and eval_program is not None:
            held.write(place / VALIDATION)
            write_file(place / EVAL_PROGRAM, [eval_program.text().encode("ascii")])
        if forward_program is not None:
            write_file(place / FORWARD_PROGRAM, [forward_program.text().encode("ascii")])
        write_file(place / MANIFEST, [manifest_bytes(job_manifest(job))])
    return load_job(directory)


def _commitment(
    parts: Parts,
    genesis: bytes,
    scalars: Mapping[str, ScalarTable],
    steps: int,
    seed: int,
    interval: int | None,
    stop_on_non_finite: bool,
) -> Commitment:
    """The fields that the job digest covers, in format 1 where that can say them all."""
    timetable = parts.timetable()
    contract = parts.programs[0].program.contract
    if interval is None:
        interval = interval_for(timetable.cycle)
    if not parts.simple:
        return JobCommitment2(
            contract=contract,
            genesis_root=genesis,
            timetable=timetable,
            rng_seed=seed,
            steps=timetable.steps_for(0, steps),
            checkpoint_interval=interval,
            scalars_digest=scalars_digest(scalars),
            stop_on_non_finite=stop_on_non_finite,
            stop_on_slot=parts.stops,
        )
    (program,), (data,) = timetable.programs, timetable.data
    return JobCommitment(
        contract=contract,
        program_digest=program.digest,
        genesis_root=genesis,
        data_root=data.root,
        record_count=data.record_count,
        batch_size=program.batch_size,
        order_seed=data.order_seed,
        rng_seed=seed,
        steps=steps,
        checkpoint_interval=interval,
        scalars_digest=scalars_digest(scalars),
        stop_on_non_finite=stop_on_non_finite,
    )


def _refuse_unfit(job: Job, programs: tuple[Program, ...]) -> None:
    job.__dict__["texts"] = programs  # the cached property: its files are not written yet
    try:
        check_program_fits(job)
    except CorruptFileError as error:
        raise UsageError(
            error.message, "Change what the sentence names: program, data, contract or stop rule."
        ) from None


def _evaluation(
    schema: DataSchema,
    validation: Data | None,
    program: Program | None,
    every: int,
) -> tuple[Evaluation | None, Records | None]:
    if validation is None and program is None:
        return None, None
    if validation is None or program is None:
        raise UsageError(
            "Validation needs both data and a program.",
            "Pass validation=... and eval_program=capture_eval(...).",
        )
    columns, kept = taken(validation, "validation data")
    if schema_for(program.batch_types, columns) != schema:
        raise UsageError("Validation records differ from the data's.", "Use the same fields.")
    size = _batch_size(program.batch_types)
    count = len(next(iter(columns.values())))
    if count < size:
        raise UsageError(
            f"{count} validation records are fewer than a batch of {size}.", "Hold out more."
        )
    held = Records(HELD_OUT, schema, columns, 0, kept)
    if every < 0:
        raise UsageError(f"evaluate_every is {every}.", "Give a number of steps; 0 is never.")
    return Evaluation(every, program.digest(), held.root, count, size), held
