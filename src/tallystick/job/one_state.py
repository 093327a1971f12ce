"""Captured steps as the programs of one job: over one state, which is that of all of them together
(COMMITMENTS 7.6), with scalars and notes that do not contradict each other; and in turns, with one
stream for all steps (7.7), or one for each program.

Each program passes through what it does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tallystick.commit.job import ScalarTable
from tallystick.commit.stream import Stream
from tallystick.commit.tensor import Array, dtype_name
from tallystick.commit.timetable import ScheduleTurn
from tallystick.errors import UsageError
from tallystick.job.parts import STEP, Parts, ProgramPart, Records, batch_size_of, turns_of
from tallystick.job.reading import End, Reading, epoch_records
from tallystick.job.scalars import DERIVED, derived_note, named_tables, scalar_tables
from tallystick.job.writing import check_state
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.program.state import ModuleNames
from tallystick.program.validation import with_slots

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep


def check_beside(steps: Mapping[str, CapturedStep]) -> None:
    """Raises UsageError for no program, for programs of more than one contract, for several under
    one that has one alone, and for two that mean different things by one tensor."""
    if not steps:
        raise UsageError("A job needs at least one program.", "Pass programs={'name': captured}.")
    contracts = {step.program.contract for step in steps.values()}
    if len(contracts) > 1:
        raise UsageError(
            f"The programs are under {len(contracts)} different contracts.",
            "Capture all of them under one contract.",
        )
    contract = contracts.pop()
    if len(steps) > 1 and find_contract(contract).keeps_log:
        raise UsageError(
            f"A job under {contract} has only one program, because this contract keeps logs.",
            "Choose another contract, or write one step with several updates (PROGRAM 5.16).",
        )
    for name, step in steps.items():
        for other, beside in steps.items():
            step.outside.check_beside(name, beside.outside, other)


def widened(
    steps: Mapping[str, CapturedStep], state: Mapping[str, Array]
) -> dict[str, CapturedStep]:
    """The steps with programs over the whole `state`."""
    slots = {n: TensorType(dtype_name(a.dtype), tuple(map(int, a.shape))) for n, a in state.items()}
    wide = {}
    for name, step in steps.items():
        others = {n: type_ for n, type_ in slots.items() if n not in step.program.state_types}
        wide[name] = replace(step, program=with_slots(step.program, others)) if others else step
    return wide


def state_together(steps: Mapping[str, CapturedStep], one_optimizer: bool) -> dict[str, Array]:
    """state[0] of all programs together.

    The optimizers of two programs have no slot in common, or all: then it is one optimizer. Where
    they are one anyway, a program may train fewer parameters than another. Raises UsageError.
    """
    found: dict[str, Array] = {}
    owners: dict[str, str] = {}
    optimizers: dict[str, set[str]] = {}
    for name, step in steps.items():
        if step.initial_state is None:
            raise UsageError(
                f"The module of {name} was captured without weights.",
                "Capture a module that has weights.",
            )
        check_state(step.initial_state, step.program.state_types)
        for slot, array in step.initial_state.items():
            before = found.get(slot)
            if before is not None and not _same(before, array):
                raise UsageError(
                    f"{owners[slot]} and {name} start with different values of {slot}.",
                    "Capture all programs from one module, and do not train it in between.",
                )
            found[slot], owners[slot] = array, owners.get(slot, name)
        mine = set(step.slot_rules)
        for other, theirs in optimizers.items():
            if mine & theirs and mine != theirs and not one_optimizer:
                raise UsageError(
                    f"The optimizers of {other} and {name} share {sorted(mine & theirs)[0]}.",
                    "State what each program trains: capture(..., trains='generator').",
                )
        optimizers[name] = mine
    return dict(sorted(found.items()))


def _same(one: Array, other: Array) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape) and (
        one.tobytes() == other.tobytes()
    )


def rates_by_program(steps: Mapping[str, CapturedStep], schedules: Any) -> dict[str, Any]:
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


def scalars_together(
    parts: Parts, steps: Mapping[str, CapturedStep], schedules: Mapping[str, Any], count: int
) -> dict[str, ScalarTable]:
    """The scalars of all programs; a table has a number for each step of its program. Raises
    UsageError."""
    if strange := sorted(set(schedules) - set(steps)):
        raise UsageError(
            f"schedules names {strange[0]!r}, which is not a program.",
            "Give the schedules by program: {'generator': scheduler}.",
        )
    timetable = parts.timetable
    whole = timetable.training_steps(count)
    found: dict[str, ScalarTable] = {}
    for number, (name, step) in enumerate(steps.items()):
        rows = timetable.rows(number, whole)
        for scalar, table in scalar_tables(step.scalars, schedules.get(name), rows).items():
            if found.setdefault(scalar, table) != table:
                raise UsageError(
                    f"Two programs have the scalar {scalar}, but {name} has other values for it.",
                    "State what each program trains: capture(..., trains='generator').",
                )
    return found


def notes_together(steps: Iterable[CapturedStep]) -> dict[str, str]:
    """What a job says of its captured steps, in its `about`."""
    tied: dict[str, str] = {}
    transient: set[str] = set()
    derived: set[str] = set()
    left: set[str] = set()
    for step in steps:
        tied |= step.names.tied
        transient |= set(step.names.transient)
        derived |= set(derived_note(step.scalars).get(DERIVED, "").split())
        left |= {part for part in step.not_followed.split("; ") if part}
    notes = ModuleNames(tied, tuple(transient)).notes()
    if left:
        notes["not followed"] = "; ".join(sorted(left))
    if derived:
        notes[DERIVED] = " ".join(sorted(derived))
    return notes


# -- one stream ------------------------------------------------------------------------------------
def numbers_with_short(
    size: int, short: int | None, records: int, end: End, steps: int
) -> list[int]:
    """The programs of an epoch's steps, in batches of `size`: 0 in each, but 1 in the last one
    where it has the `short` size. Where all are 0 they may be fewer.

    Raises UsageError unless a short batch has that size, and where none has one.
    """
    stream = Stream(STEP, 0, size, epoch_records=epoch_records(records, size, end))
    last, epoch = stream.last_size, stream.epoch
    if epoch is None or not stream.is_uneven:
        if short is not None:
            raise UsageError(
                "No batch of an epoch is short, so the short step is not needed.", "Leave it out."
            )
        return [0]
    if epoch == 1:
        raise UsageError(
            f"An epoch has {last} records, fewer than a batch of {size}.",
            f"Capture the step with an example batch of {last}.",
        )
    if steps < epoch:  # the run ends before the short batch
        return [0] * steps
    if short != last:
        raise UsageError(
            f"The last batch of an epoch has {last} records, and "
            + (
                "no step is given for it."
                if short is None
                else "the short step has another number."
            ),
            f"Capture the step again with an example batch of {last} and pass it as short, or set "
            "epoch_end to 'drop' or 'run on'.",
        )
    return [0] * (epoch - 1) + [1]


def with_short(
    step: CapturedStep, short: CapturedStep | None, reading: Reading, steps: int
) -> Parts:
    """`step` in each of `steps` steps, but `short` where an epoch's last batch is a short one.

    Raises UsageError unless `short` is the step of such a batch, or none where there is none.
    """
    records = reading.shared(step, *([] if short is None else [short]))
    size = batch_size_of(step.batch)
    of_short = None if short is None else batch_size_of(short.batch)
    numbers = numbers_with_short(size, of_short, records.count, reading.end, steps)
    if not numbers[-1] or short is None:
        return _one_stream({STEP: step}, records, reading.end, numbers)
    if short.scalars != step.scalars:
        raise UsageError(
            "The short step does not have the rates of the step.",
            "Capture both with the same optimizer.",
        )
    if find_contract(step.program.contract).keeps_log:
        raise UsageError(
            f"A short batch needs a second program, but a job under {step.program.contract} has "
            "only one, because this contract keeps logs.",
            "Drop the last batch (drop_last=True), or choose a batch size that divides the number "
            "of records.",
        )
    return _one_stream({STEP: step, f"{STEP}-short": short}, records, reading.end, numbers)


def by_step(
    steps: Mapping[str, CapturedStep], names: Sequence[str], reading: Reading, count: int
) -> Parts:
    """The programs `steps`, of which each of `count` steps executes the one that `names` says.
    Raises UsageError."""
    if len(names) != count:
        raise UsageError(
            f"programs_of_steps has {len(names)} names, but the job has {count} steps.",
            "Give one name for each training step.",
        )
    records = reading.shared(*steps.values())
    order = list(steps)
    if strange := sorted(set(names) - set(order)):
        raise UsageError(
            f"programs_of_steps names {strange[0]!r}, which is not a program of the job.",
            f"Choose from {', '.join(order)}.",
        )
    return _one_stream(steps, records, reading.end, [order.index(name) for name in names])


def _one_stream(
    steps: Mapping[str, CapturedStep], records: Records, end: End, numbers: Sequence[int]
) -> Parts:
    """The parts of steps in one stream; `numbers` has the program of each step, or of each step of
    an epoch that is repeated."""
    size = max(batch_size_of(step.batch) for step in steps.values())
    epoch = epoch_records(records.count, size, end)
    stream = Stream(next(iter(steps)), 0, size, epoch_records=epoch)
    unit = stream.epoch if stream.epoch is not None and stream.is_uneven else 1
    programs = tuple(_part(name, step, stream) for name, step in steps.items())
    return Parts(programs, (records,), turns_of(numbers, unit))


def _part(name: str, step: CapturedStep, stream: Stream) -> ProgramPart:
    size = batch_size_of(step.batch) if step.batch else 1
    return ProgramPart(name, step.program, stream, size, step.micro_batches or 1)


# -- a stream for each program ---------------------------------------------------------------------
def by_turns(
    steps: Mapping[str, CapturedStep],
    schedule: Sequence[tuple[str, int]] | None,
    reading: Reading,
) -> Parts:
    """Programs that each have a stream of their own, and take the turns of `schedule`; None is one
    step of each. Raises UsageError."""
    sets, reads = reading.by_program(steps)
    programs = []
    for name, step in steps.items():
        size, number = batch_size_of(step.batch) if step.batch else 1, reads[name]
        taken = None if number is None else epoch_records(sets[number].count, size, reading.end)
        stream = Stream(name, number, size, epoch_records=taken)
        if stream.is_uneven:
            raise UsageError(
                f"An epoch of {name} ends with a batch of {stream.last_size} records.",
                "Pass programs_of_steps with a program for it, or set epoch_end to 'drop'.",
            )
        programs.append(_part(name, step, stream))
    return Parts(tuple(programs), sets, _turns(list(steps), schedule))


def _turns(
    names: Sequence[str], schedule: Sequence[tuple[str, int]] | None
) -> tuple[ScheduleTurn, ...]:
    turns = []
    for name, length in schedule or [(name, 1) for name in names]:
        if name not in names:
            raise UsageError(
                f"The schedule names {name!r}, which is not a program of the job.",
                f"Choose from {', '.join(names)}.",
            )
        turns.append(ScheduleTurn(names.index(name), length))
    return tuple(turns)


def check_rounds(parts: Parts, every: int) -> None:
    """Raises UsageError unless `every` steps are whole rounds of the turns."""
    a_round = sum(turn.steps for turn in parts.turns)
    if every % a_round:
        raise UsageError(
            f"evaluate_every is {every}, which is not a multiple of the {a_round} steps of a "
            "round.",
            f"Pass evaluate_every={max(1, every // a_round) * a_round}.",
        )
