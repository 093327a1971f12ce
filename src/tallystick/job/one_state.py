"""Captured steps as the programs of one job: over one state, which is that of all of them together
(COMMITMENTS 7.6), with scalars and notes that do not contradict each other.

Each program passes through what it does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tallystick.commit.job import ScalarTable
from tallystick.commit.tensor import Array, dtype_name
from tallystick.errors import UsageError
from tallystick.job.parts import Parts
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
