"""What every author of a job does, of captured steps or of a share: its commitment, its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tallystick.commit.job import (
    Commitment,
    JobCommitment,
    JobCommitment2,
    ScalarTable,
    scalars_digest,
)
from tallystick.commit.tensor import Array
from tallystick.disk.files import make_directory, write_file
from tallystick.disk.manifest import manifest_bytes, written_anew
from tallystick.disk.tensorfile import write_tensors
from tallystick.errors import CorruptFileError, CounterpartyError, UsageError
from tallystick.job.job import (
    EVAL_PROGRAM,
    FORWARD_PROGRAM,
    JOB_DIRECTORY,
    MANIFEST,
    STATE0,
    VALIDATION,
    Job,
    check_program_fits,
)
from tallystick.job.job_file import job_manifest, load_job
from tallystick.job.parts import Parts, Records, interval_for
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.state import check_slots


def check_state(state: Mapping[str, Array], types: Mapping[str, TensorType]) -> None:
    """Raise UsageError unless the slots are those that the program has."""
    try:
        check_slots(state, types, "initial state")
    except CounterpartyError as error:
        raise UsageError(error.message, "Give every weight the captured dtype and shape.") from None


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
        timetable = parts.timetable
        common: dict[str, Any] = {
            "contract": parts.programs[0].program.contract,
            "genesis_root": genesis,
            "rng_seed": seed,
            "checkpoint_interval": interval_for(timetable) if interval is None else interval,
            "scalars_digest": scalars_digest(scalars),
            "stop_on_non_finite": stop_on_non_finite,
        }
        if not parts.simple:
            whole = timetable.training_steps(steps)
            return JobCommitment2(
                timetable=timetable, steps=whole, stop_on_slot=parts.stops, **common
            )
        (program,), (data,) = timetable.programs, timetable.data
        return JobCommitment(
            program_digest=program.digest,
            data_root=data.root,
            record_count=data.record_count,
            batch_size=program.batch_size,
            order_seed=data.order_seed,
            steps=steps,
            **common,
        )
    except UsageError as error:
        raise UsageError(f"The job cannot be made: {error.message}", error.next_action) from None


def _refuse_unfit(job: Job, programs: tuple[Program, ...]) -> None:
    job.__dict__["texts"] = programs  # the cached property: its files are not written yet
    try:
        check_program_fits(job)
    except CorruptFileError as error:
        raise UsageError(
            error.message,
            "Correct what the message names: the program, the data, the contract or the stop rule.",
        ) from None


def write_job(
    job: Job,
    parts: Parts,
    slots: Mapping[str, Array],
    beside: tuple[Records, Program] | None = None,
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
    with written_anew(directory, JOB_DIRECTORY, overwrite) as place:
        make_directory(place / "data")
        for number, part in enumerate(parts.programs):
            text = part.program.text().encode("ascii")
            write_file(place / job.program_file(number), [text])
        write_tensors(place / STATE0, {n: a for n, a in slots.items() if n not in job.fills})
        for number, data_set in enumerate(parts.data):
            data_set.write(place / job.data_file(number))
        if beside is not None:
            held, evaluation = beside
            held.write(place / VALIDATION)
            write_file(place / EVAL_PROGRAM, [evaluation.text().encode("ascii")])
        if forward_program is not None:
            write_file(place / FORWARD_PROGRAM, [forward_program.text().encode("ascii")])
        write_file(place / MANIFEST, [manifest_bytes(job_manifest(job))])
    return load_job(directory)
