"""The scalars of a job: numbers and tables, from those that the optimizers name and the author's
schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tallystick.commit.job import ScalarTable
from tallystick.errors import UsageError
from tallystick.program.tables import Derived, Scalar

# A constant, one number per step, a function of the step (from 0), or a scheduler of torch.
Schedule = float | Sequence[float] | Callable[[int], float] | Any


# The entry of a job's `about` with the scalars whose numbers follow from the number of the step.
DERIVED = "derived tables"
# That of a job whose loss decides by the number of the step: it does so for the job's steps alone.
BY_STEP = "programs by step"


def derived_note(named: Mapping[str, Scalar]) -> dict[str, str]:
    """That entry, if there are such scalars: a job that goes on needs their later numbers."""
    names = [n for n, s in named.items() if isinstance(s, Derived) and s.follows_steps]
    return {DERIVED: " ".join(sorted(names))} if names else {}


def named_tables(named: Mapping[str, Scalar]) -> set[str]:
    """The tables that scalars are taken from, by their names."""
    return {r for s in named.values() if isinstance(r := _rate(s), str)}


def scalar_tables(
    named: Mapping[str, Scalar],
    schedules: Mapping[str, Schedule] | Any | None,
    steps: int,
    first: int = 0,
) -> dict[str, ScalarTable]:
    """A constant or a table for every per-step scalar.

    `schedules` has one for each table that the optimizers name, or is a scheduler over all groups
    of a torch optimizer. `first` steps were made before this job, which goes on from them: rules
    and functions of the step count from there. Raises UsageError for a table that is missing, of
    another length, or used by nothing.
    """
    wanted = named_tables(named)
    given = _by_name(schedules, wanted, steps)
    unused = sorted(set(given) - wanted)
    if unused:
        raise UsageError(
            f"Nothing uses the schedule {unused[0]!r}. The optimizer names "
            + (f"{', '.join(map(repr, sorted(wanted)))}." if wanted else "no table."),
            "Give the optimizer this name as its rate (lr='lr'), or create the torch scheduler "
            "before the capture.",
        )
    tables = {name: _table(name, given[name], steps, first) for name in given}
    found: dict[str, ScalarTable] = {}
    for name, scalar in named.items():
        rate = _rate(scalar)
        if isinstance(rate, str) and rate not in tables:
            raise UsageError(
                f"The optimizer takes {name} from the table {rate!r}, which was not given.",
                f"Pass schedules={{{rate!r}: [...]}} with one number per step, or a scheduler.",
            )
        table = tables[rate] if isinstance(rate, str) else float(rate)
        found[name] = (
            _derived(scalar, table, steps, first) if isinstance(scalar, Derived) else table
        )
    return found


def _rate(scalar: Scalar) -> float | str:
    return scalar.rate if isinstance(scalar, Derived) else scalar


def _derived(rule: Derived, rates: ScalarTable, steps: int, first: int) -> ScalarTable:
    """The table of a rule; a number where it is the same in every step."""
    each = [rates] * steps if isinstance(rates, float) else rates
    table = [float(rule.at(first + step + 1, rate)) for step, rate in enumerate(each)]
    return table[0] if len(set(table)) == 1 else table


def _by_name(schedules: Any, wanted: set[str], steps: int) -> dict[str, Schedule]:
    if schedules is None:
        return {}
    if isinstance(schedules, Mapping):
        return dict(schedules)
    tables = _rates_of(schedules, steps)
    if len(tables) == 1 and len(wanted) == 1:
        return {next(iter(wanted)): tables[0]}
    numbered = {f"lr.{i:0{len(str(len(tables) - 1))}d}": t for i, t in enumerate(tables)}
    if not wanted or not wanted <= set(numbered):
        raise UsageError(
            f"The scheduler has rates for {len(tables)} groups, but the optimizers name "
            + (f"{', '.join(map(repr, sorted(wanted)))}." if wanted else "no table."),
            "Create it for the captured torch optimizer before the capture, or pass "
            "schedules={name: scheduler}.",
        )
    return {name: numbered[name] for name in wanted}


def _rates_of(scheduler: Any, steps: int) -> list[list[float]]:
    # A scheduler is an object of torch, so torch is loaded where there is one.
    from tallystick.program.capture.stock_schedules import rates_of

    return rates_of(scheduler, steps)


def _table(name: str, schedule: Schedule, steps: int, first: int) -> ScalarTable:
    if isinstance(schedule, (int, float)):
        return _finite(name, [float(schedule)])[0]
    if callable(schedule):
        return _finite(name, [float(schedule(first + step)) for step in range(steps)])
    if not isinstance(schedule, Sequence):
        if hasattr(schedule, "__array__") and not hasattr(schedule, "optimizer"):
            schedule = schedule.tolist()
            if not isinstance(schedule, list):  # an array of no axis
                return _finite(name, [float(schedule)])[0]
        else:
            tables = _rates_of(schedule, steps)
            if len(tables) != 1:
                raise UsageError(
                    f"The scheduler of {name!r} has rates for {len(tables)} groups.",
                    "Give a scheduler with a single group.",
                )
            return tables[0]
    if len(schedule) != steps:
        raise UsageError(
            f"The schedule {name!r} has {len(schedule)} numbers, but the job has {steps} steps.",
            "Give one number per step.",
        )
    return _finite(name, [float(v) for v in schedule])


def _finite(name: str, table: list[float]) -> list[float]:
    for step, value in enumerate(table):
        if not math.isfinite(value):
            raise UsageError(
                f"The schedule {name!r} has the value {value} in step {step}.",
                "Give finite numbers.",
            )
    return table
