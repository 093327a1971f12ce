"""Writing a job of several captured steps that take turns: a GAN's two halves, tasks by turns.

The steps are programs over one state (COMMITMENTS 7.6): that of all of them together. Each passes
through what it does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.job import Commitment, JobCommitment2, ScalarTable
from tallystick.commit.stream import RUN_ON, SHUFFLED, Stream
from tallystick.commit.tensor import Array, dtype_name
from tallystick.commit.timetable import Turn
from tallystick.devices.environment import exact_environment
from tallystick.disk.anew import refuse_taken
from tallystick.errors import UsageError
from tallystick.job.columns import Data, schema_for, taken
from tallystick.job.first_steps import first_step_reason
from tallystick.job.job import JOB_DIRECTORY, Job
from tallystick.job.one_stream import End, by_step, epoch_records
from tallystick.job.parts import (
    TRAIN,
    Part,
    Parts,
    Records,
    batch_size_of,
    validation_sentence,
    with_validation,
)
from tallystick.job.scalars import DERIVED, Schedule, derived_note, named_tables, scalar_tables
from tallystick.job.writing import (
    check_state,
    commitment_of,
    evaluation_of,
    fills_of,
    short_evaluation,
    write_job,
)
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.module_names import ModuleNames
from tallystick.program.state import State
from tallystick.program.validation import StopRule, with_slots

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep

# By program; of programs in one stream those of one of them.
Schedules = Mapping[str, Mapping[str, Schedule] | Any] | Any


@dataclass(frozen=True)
class Held:
    """Held-out records, and the pass over them after every `every` training steps. `short` is the
    evaluation of a last batch that has fewer records."""

    data: Data
    evaluation: Program
    every: int
    rule: StopRule
    short: Program | None = None


@exact_environment()
def save_several(
    directory: str | Path,
    steps: Mapping[str, CapturedStep],
    data: Data | None,
    *,
    schedule: Sequence[tuple[str, int]] | None,
    count: int,
    programs_of_steps: Sequence[str] | None = None,
    order: str = SHUFFLED,
    epoch_end: End = RUN_ON,
    seed: int = 0,
    order_seed: int | None = None,
    own_data: Mapping[str, Data] | None = None,
    checkpoint_interval: int | None = None,
    schedules: Schedules | None = None,
    held: Held | None = None,
    about: Mapping[str, str] | None = None,
    compare_first_step: bool = True,
    overwrite: bool = False,
) -> Job:
    """Write the job whose programs `steps` take the turns of `schedule`; the manifest comes last.

    `schedule` has pairs of a program's name and a number of steps, repeated until `count` training
    steps are made; None is one step of each in turn. With `programs_of_steps` in its place, the
    name of the program of each step, the programs go through `data` together: one stream of
    batches, of which each program has the size, and one optimizer and table of rates, so that
    `schedules` are those of one program. `order` and `epoch_end` are those of `job.save.save_job`.
    `data` are the records of every program that is not in `own_data`, which has other records by
    program; a program whose batch is empty reads none. `seed` keys every program's random numbers
    and, but for an `order_seed`, the order of every data set. `schedules` has, by program, what
    `job.save.save_job` takes for one; a table has a number for each step of its program.

    Each program's first step is compared with the module from state[0]. Raises as `save_job`, and
    UsageError for programs of different weights or contracts, and for two that mean different
    things by one name.
    """
    directory = Path(directory)
    if not overwrite:
        refuse_taken(directory, JOB_DIRECTORY)
    _check(steps, count)
    order_seed = seed if order_seed is None else order_seed
    state = _state(steps, programs_of_steps is not None)
    slots = {name: _type(array) for name, array in state.items()}
    wide = {
        name: replace(step, program=with_slots(step.program, _others(slots, step.program)))
        for name, step in steps.items()
    }
    if programs_of_steps is None:
        parts = _by_turns(wide, data, own_data or {}, order_seed, schedule, order, epoch_end)
        if held is not None:
            _check_rounds(parts, held.every)
    else:
        if schedule is not None or own_data:
            raise UsageError(
                "Programs of one stream have no schedule and no data of their own.",
                "Leave schedule and own_data out, or programs_of_steps.",
            )
        if len(programs_of_steps) != count:
            raise UsageError(
                f"programs_of_steps has {len(programs_of_steps)} names for {count} steps.",
                "Give one name for each training step.",
            )
        parts = by_step(wide, programs_of_steps, _shared(wide, data, order_seed, order), epoch_end)
        schedules = _by_program(steps, schedules)
    if held is not None:
        parts = _validated(parts, held, count)
    types = parts.programs[0].program.state_types
    values = {**state, **parts.slots}
    ordered = {name: np.asarray(values[name], order="C") for name in types}
    scalars = _scalars(parts, steps, schedules or {}, count)
    commitment = commitment_of(
        parts, State(ordered).root(), scalars, count, seed, checkpoint_interval, True
    )
    notes = {**(about or {}), **_notes(steps, commitment)}
    job = Job(
        directory,
        commitment,
        scalars,
        tuple(each.schema for each in parts.data),
        fills_of(ordered),
        None,
        None,
        None,
        notes,
    )
    for number, (name, step) in enumerate(steps.items()):
        reason = (
            first_step_reason(job, parts, number, step, ordered) if compare_first_step else None
        )
        if not compare_first_step:
            reason = "switched off by the author"
        if reason is not None:
            notes[f"first step of {name}"] = f"not compared with the module: {reason}"
    return write_job(job, parts, ordered, overwrite=overwrite)


# -- programs over one state -----------------------------------------------------------------------
def _check(steps: Mapping[str, CapturedStep], count: int) -> None:
    if not steps:
        raise UsageError("A job has at least one program.", "programs={'name': captured}.")
    if count < 1:
        raise UsageError(f"A job of {count} steps trains nothing.", "Give at least one step.")
    contracts = {step.program.contract for step in steps.values()}
    if len(contracts) > 1:
        raise UsageError(
            f"The programs are under {len(contracts)} contracts.", "Capture all under one."
        )
    contract = contracts.pop()
    if len(steps) > 1 and find_contract(contract).keeps_log:
        raise UsageError(
            f"Under {contract}, which keeps logs, a job has one program.",
            "Choose another contract, or write one step with several updates (PROGRAM 5.16).",
        )
    for name, step in steps.items():
        for other, beside in steps.items():
            step.outside.check_beside(name, beside.outside, other)


def _type(array: Array) -> TensorType:
    return TensorType(dtype_name(array.dtype), tuple(map(int, array.shape)))


def _others(slots: Mapping[str, TensorType], program: Program) -> dict[str, TensorType]:
    return {name: type_ for name, type_ in slots.items() if name not in program.state_types}


def _state(steps: Mapping[str, CapturedStep], one_optimizer: bool) -> dict[str, Array]:
    """state[0] of all programs together.

    The optimizers of two programs have no slot in common, or all: then it is one optimizer. Where
    they are one anyway, a program may train fewer parameters than another.
    """
    found: dict[str, Array] = {}
    owners: dict[str, str] = {}
    optimizers: dict[str, set[str]] = {}
    for name, step in steps.items():
        if step.initial_state is None:
            raise UsageError(
                f"The module of {name} was captured without weights.", "Capture one that has some."
            )
        check_state(step.initial_state, step.program.state_types)
        for slot, array in step.initial_state.items():
            before = found.get(slot)
            if before is not None and not _same(before, array):
                raise UsageError(
                    f"{owners[slot]} and {name} begin with different values of {slot}.",
                    "Capture all programs from one module, and train none of it in between.",
                )
            found[slot], owners[slot] = array, owners.get(slot, name)
        mine = set(step.slot_rules)
        for other, theirs in optimizers.items():
            if mine & theirs and mine != theirs and not one_optimizer:
                raise UsageError(
                    f"The optimizers of {other} and {name} share {sorted(mine & theirs)[0]}.",
                    "Say what each program trains: capture(..., trains='generator').",
                )
        optimizers[name] = mine
    return dict(sorted(found.items()))


def _same(one: Array, other: Array) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape) and (
        one.tobytes() == other.tobytes()
    )


# -- records, turns, scalars -----------------------------------------------------------------------
def _data(
    steps: Mapping[str, CapturedStep],
    data: Data | None,
    own: Mapping[str, Data],
    seed: int,
    order: str,
) -> tuple[tuple[Records, ...], dict[str, int | None]]:
    """The data sets, and the number of the one that each program reads."""
    if strange := sorted(set(own) - set(steps)):
        raise UsageError(f"own_data names no program: {strange[0]!r}.", "Name one of programs.")
    sets: list[Records] = []
    reads: dict[str, int | None] = {}
    shared: int | None = None
    for name, step in steps.items():
        if not step.batch:
            if name in own:
                raise UsageError(f"The program {name} reads no batch.", "Leave its data out.")
            reads[name] = None
            continue
        given = own.get(name, data)
        if given is None:
            raise UsageError(f"The program {name} has no data.", "Pass data, or own_data.")
        if name not in own and shared is not None:
            schema_for(step.batch, sets[shared].columns)  # the same fields
            reads[name] = shared
            continue
        columns, kept = taken(given, f"data of {name}")
        schema = schema_for(step.batch, columns)
        reads[name] = len(sets)
        if name not in own:
            shared = len(sets)
        known = TRAIN if name not in own else name
        sets.append(Records(known, schema, columns, seed, kept, order))
    if data is not None and shared is None:
        raise UsageError("No program reads data.", "Leave data out, or a batch in.")
    return tuple(sets), reads


def _by_turns(
    steps: Mapping[str, CapturedStep],
    data: Data | None,
    own: Mapping[str, Data],
    seed: int,
    schedule: Sequence[tuple[str, int]] | None,
    order: str,
    end: End,
) -> Parts:
    """Programs that each have a stream of their own, and take the turns of `schedule`."""
    sets, reads = _data(steps, data, own, seed, order)
    programs = []
    for name, step in steps.items():
        size, number = batch_size_of(step.batch) if step.batch else 1, reads[name]
        taken = None if number is None else epoch_records(sets[number].count, size, end)
        stream = Stream(name, number, size, epoch_records=taken)
        if stream.is_uneven:
            raise UsageError(
                f"An epoch of {name} ends with a batch of {stream.last_size} records.",
                "Pass programs_of_steps with a program for it, or let epoch_end be 'drop'.",
            )
        programs.append(Part(name, step.program, stream, size, step.micro_batches or 1))
    return Parts(tuple(programs), sets, _turns(list(steps), schedule))


def _check_rounds(parts: Parts, every: int) -> None:
    a_round = sum(turn.steps for turn in parts.turns)
    if every % a_round:
        raise UsageError(
            f"{every} steps between passes are no whole number of rounds of {a_round} steps.",
            f"Pass evaluate_every={max(1, every // a_round) * a_round}.",
        )


def _shared(steps: Mapping[str, CapturedStep], data: Data | None, seed: int, order: str) -> Records:
    """The records of all programs."""
    if data is None:
        raise UsageError("Programs of one stream read one data set.", "Pass data.")
    columns, kept = taken(data, "data")
    schemas = [schema_for(step.batch, columns) for step in steps.values()]
    return Records(TRAIN, schemas[0], columns, seed, kept, order)


def _turns(names: Sequence[str], schedule: Sequence[tuple[str, int]] | None) -> tuple[Turn, ...]:
    turns = []
    for name, length in schedule or [(name, 1) for name in names]:
        if name not in names:
            raise UsageError(
                f"The schedule names {name!r}, which is no program of the job.",
                f"They are {', '.join(names)}.",
            )
        turns.append(Turn(names.index(name), length))
    return tuple(turns)


def _validated(parts: Parts, held: Held, count: int) -> Parts:
    columns, _ = taken(held.data, "validation data")
    schema = schema_for(held.evaluation.batch_types, columns)
    about, records = evaluation_of(schema, held.data, held.evaluation, held.every)
    assert about is not None and records is not None
    size, short = about.batch_size, held.short
    last = None if short is None else short_evaluation(short, records, size)
    return with_validation(
        parts, held.evaluation, records, size, held.every, held.rule, count, last
    )


def _by_program(steps: Mapping[str, CapturedStep], schedules: Any) -> dict[str, Any]:
    """The schedules of one stream by program: each has the tables that it names, and those that
    none names."""
    if not isinstance(schedules, Mapping):
        return dict.fromkeys(steps, schedules)
    named = {name: named_tables(step.scalars) for name, step in steps.items()}
    others = set(schedules).difference(*named.values())
    return {
        name: {n: table for n, table in schedules.items() if n in mine | others}
        for name, mine in named.items()
    }


def _scalars(
    parts: Parts, steps: Mapping[str, CapturedStep], schedules: Mapping[str, Any], count: int
) -> dict[str, ScalarTable]:
    """The scalars of all programs; a table has a number for each step of its program."""
    if strange := sorted(set(schedules) - set(steps)):
        raise UsageError(
            f"schedules names no program: {strange[0]!r}.",
            "Give them by program: {'generator': scheduler}.",
        )
    timetable = parts.timetable()
    whole = timetable.training_steps(count)
    found: dict[str, ScalarTable] = {}
    for number, (name, step) in enumerate(steps.items()):
        rows = timetable.rows(number, whole)
        for scalar, table in scalar_tables(step.scalars, schedules.get(name), rows).items():
            if found.setdefault(scalar, table) != table:
                raise UsageError(
                    f"Two programs have a scalar {scalar}, and {name} has other values of it.",
                    "Say what each program trains: capture(..., trains='generator').",
                )
    return found


# -- what is said of it, and the first steps -------------------------------------------------------
def _notes(steps: Mapping[str, CapturedStep], commitment: Commitment) -> dict[str, str]:
    tied: dict[str, str] = {}
    transient: set[str] = set()
    derived: list[str] = []
    for step in steps.values():
        tied |= step.names.tied
        transient |= set(step.names.transient)
        derived += derived_note(step.scalars).values()
    notes = ModuleNames(tied, tuple(transient)).notes()
    left = {part for s in steps.values() for part in s.not_followed.split("; ") if part}
    if left:
        notes["not followed"] = "; ".join(sorted(left))
    if derived:
        notes[DERIVED] = " ".join(sorted(set(" ".join(derived).split())))
    assert isinstance(commitment, JobCommitment2) or len(steps) == 1
    if isinstance(commitment, JobCommitment2):
        *_, last = commitment.timetable.programs
        if last.by_pass:
            notes["validation"] = validation_sentence(commitment)
    return notes
