"""What every author of a job does, whether of one step or of several: its commitment, its files."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tallystick.commit.data import DataSchema
from tallystick.commit.job import (
    Commitment,
    JobCommitment,
    JobCommitment2,
    ScalarTable,
    scalars_digest,
)
from tallystick.commit.tensor import Array
from tallystick.disk.anew import written_anew
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
from tallystick.job.parts import HELD_OUT, Parts, Records, batch_size_of, interval_for
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.state import check_slots


def check_state(state: Mapping[str, Array], types: Mapping[str, TensorType]) -> None:
    """Raise UsageError unless the slots are those that the program has."""
    try:
        check_slots(state, types, "initial state")
    except CounterpartyError as error:
        raise UsageError(
            error.message, "Every weight needs the captured dtype and shape."
        ) from None


def fills_of(slots: Mapping[str, Array]) -> dict[str, float]:
    """The slots that one repeated value fills, with that value: they need no file."""
    return {n: v for n, a in slots.items() if (v := _repeated_value(a)) is not None}


def _repeated_value(array: Array) -> float | None:
    """The value that fills a whole float tensor of more than one element, if one value does."""
    if array.dtype.kind != "f" or array.size < 2:
        return None
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    if (bits != bits[0]).any() or not np.isfinite(array.reshape(-1)[0]):
        return None
    return float(array.reshape(-1)[0])


def commitment_of(
    parts: Parts,
    genesis: bytes,
    scalars: Mapping[str, ScalarTable],
    steps: int,
    seed: int,
    interval: int | None,
    stop_on_non_finite: bool,
) -> Commitment:
    """The fields that the job digest covers, in format 1 where that can say them all.

    Raises UsageError for values out of range.
    """
    try:
        return _commitment(parts, genesis, scalars, steps, seed, interval, stop_on_non_finite)
    except UsageError as error:
        raise UsageError(f"The job cannot be made: {error.message}", error.next_action) from None


def _commitment(
    parts: Parts,
    genesis: bytes,
    scalars: Mapping[str, ScalarTable],
    steps: int,
    seed: int,
    interval: int | None,
    stop_on_non_finite: bool,
) -> Commitment:
    timetable = parts.timetable()
    contract = parts.programs[0].program.contract
    if interval is None:
        interval = interval_for(timetable)
    if not parts.simple:
        return JobCommitment2(
            contract=contract,
            genesis_root=genesis,
            timetable=timetable,
            rng_seed=seed,
            steps=timetable.training_steps(steps),
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


def evaluation_of(
    schema: DataSchema,
    validation: Data | None,
    program: Program | None,
    every: int,
) -> tuple[Evaluation | None, Records | None]:
    """What the manifest says of validation, and the held-out records. Raises UsageError."""
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
    size = batch_size_of(program.batch_types)
    count = len(next(iter(columns.values())))
    if count < size:
        raise UsageError(
            f"{count} validation records are fewer than a batch of {size}.", "Hold out more."
        )
    held = Records(HELD_OUT, schema, columns, 0, kept)
    if every < 0:
        raise UsageError(f"evaluate_every is {every}.", "Give a number of steps; 0 is never.")
    return Evaluation(every, program.digest(), held.root, count, size), held


def short_evaluation(program: Program, held: Records, size: int) -> Program:
    """`program`, if it evaluates the last batch of `held` in batches of `size`, where that has
    fewer records. Raises UsageError."""
    last = held.count % size
    if schema_for(program.batch_types, held.columns) != held.schema:
        raise UsageError("The short evaluation has other fields.", "Use the same fields.")
    if batch_size_of(program.batch_types) != last:
        raise UsageError(
            f"The last batch of {held.count} held-out records in batches of {size} has "
            f"{last or size} records, the short evaluation "
            f"{batch_size_of(program.batch_types)}.",
            f"Capture it with an example batch of {last}." if last else "Leave it out.",
        )
    return program


def write_job(
    job: Job,
    parts: Parts,
    slots: Mapping[str, Array],
    beside: tuple[Records | None, Program | None] | None = None,
    forward_program: Program | None = None,
    overwrite: bool = False,
) -> Job:
    """Write the files of `job`, the manifest last; returns the job as it is read again. A job that
    is there is refused, or with `overwrite` replaced.

    `beside` are held-out records and the evaluation that the run does not commit to. Raises
    UsageError for parts that do not fit together, StorageError.
    """
    directory = job.directory
    _refuse_unfit(job, tuple(part.program for part in parts.programs))
    held, evaluation = beside or (None, None)
    with written_anew(directory, JOB_DIRECTORY, overwrite) as place:
        make_directory(place / "data")
        for number, part in enumerate(parts.programs):
            text = part.program.text().encode("ascii")
            write_file(place / job.program_file(number), [text])
        write_tensors(place / STATE0, {n: a for n, a in slots.items() if n not in job.fills})
        for number, data_set in enumerate(parts.data):
            data_set.write(place / job.data_file(number))
        if held is not None and evaluation is not None:
            held.write(place / VALIDATION)
            write_file(place / EVAL_PROGRAM, [evaluation.text().encode("ascii")])
        if forward_program is not None:
            write_file(place / FORWARD_PROGRAM, [forward_program.text().encode("ascii")])
        write_file(place / MANIFEST, [manifest_bytes(job_manifest(job))])
    return load_job(directory)
