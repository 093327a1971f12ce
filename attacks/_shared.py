"""Shared by the attack files: the declaration of an attack, and the choice of a place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallystick.commit.encoding import JsonValue
from tallystick.commit.tensor import DTYPES, Array
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.run.cheats.attacks import KINDS
from tallystick.run.cheats.override import Override
from tallystick.run.store.unsigned import Params

MIDDLE = -1  # as a step: one of training, in the middle of the run
# Where a cheat falsifies a product: the last one of the first of these that the program has.
PRODUCTS = ("aten.mm", "aten.addmm", "aten.convolution")


@dataclass(frozen=True)
class Attack:
    """A cheat by name: its kind (a key of KINDS), one line about it, the function that builds it,
    its parameters' defaults."""

    name: str
    kind: str
    summary: str
    build: Callable[[Job, dict[str, Any]], Override]
    defaults: dict[str, JsonValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind

    def make(self, job: Job, params: Params) -> Override:
        """The cheat's hooks. Raises UsageError for unknown parameters, values of another kind, and
        jobs that give this cheat nothing to do."""
        chosen: dict[str, Any] = dict(self.defaults)
        for name, value in params.items():
            if name not in chosen:
                known = ", ".join(chosen) or "none"
                raise UsageError(f"{self.name} has no parameter {name!r}.", f"It has: {known}.")
            chosen[name] = _as(self.defaults[name], value, name)
        if "step" in chosen:
            chosen["step"] = step_of(job, chosen["step"])
        return self.build(job, chosen)


def _as(default: JsonValue, value: JsonValue, name: str) -> JsonValue:
    """`value`, perhaps typed on a command line, as the default's type: an integer or a text."""
    if isinstance(default, int):
        try:
            return int(str(value))
        except ValueError:
            raise UsageError(f"{name} must be an integer, not {value!r}.") from None
    return str(value)


def step_of(job: Job, step: int) -> int:
    """A step of the job; MIDDLE is a step of training, at or before the middle one of those that
    every run of the job executes: a run may stop after its first cycle of turns. Raises
    UsageError."""
    chosen = step
    if step == MIDDLE:
        timetable = job.commitment.timetable
        reached = timetable.cycle if job.commitment.stop_on_slot else job.steps
        chosen = min(reached, job.steps) // 2
        while chosen and timetable.at(chosen).program:
            chosen -= 1
    if not 0 <= chosen < job.steps:
        raise UsageError(f"The job has no step {step}.", f"Choose 0 to {job.steps - 1}.")
    return chosen


def program_of(job: Job, step: int) -> str:
    """The name of the program that a step executes."""
    timetable = job.commitment.timetable
    return timetable.programs[timetable.at(step).program].name


def steps_of(job: Job, name: str) -> list[int]:
    """The steps of the first cycle of turns that execute the program `name`.

    Raises UsageError for a job without such a program: it commits to no validation.
    """
    timetable = job.commitment.timetable
    first = range(min(timetable.cycle, job.steps))
    found = [step for step in first if program_of(job, step) == name]
    if not found:
        raise nothing_to_do(f"the job has no program {name!r} (committed validation)")
    return found


def node_of(job: Job, wanted: int, *operators: str, step: int = 0) -> int:
    """Node number `wanted` of the program of `step`, or, if it is negative, the last one of these
    operators.

    The last products are gradients of weights, so a false number there reaches the state.
    """
    nodes = job.terms.program_at(step).nodes
    if 0 <= wanted < len(nodes) - 1:
        return wanted
    if wanted < 0:
        for operator in operators:
            for index in reversed(range(len(nodes))):
                if nodes[index].op == operator:
                    return index
        name = program_of(job, step)
        raise nothing_to_do(f"the program {name} of step {step} has no {' or '.join(operators)}")
    raise UsageError(
        f"The program of step {step} has no node {wanted} for it.",
        f"Choose 0 to {len(nodes) - 2}, see the text of the program {program_of(job, step)}.",
    )


def nothing_to_do(why: str) -> UsageError:
    """The error for a job in which this cheat changes no number."""
    return UsageError(f"This cheat has nothing to do here: {why}.", "Choose another attack or job.")


def falsify(output: Array, element: int = -1, bit: int = -1) -> None:
    """Flip `bit` of element number `element` (row-major) in place.

    A negative `element` stands for the largest one, a negative `bit` for twice the value. In
    integers and booleans they stand for the middle element and for another value.
    """
    array: Any = output
    floats = array.dtype.kind == "f"
    if element < 0:
        size = np.where(np.isfinite(array), np.abs(array), 0) if floats else array
        element = int(size.argmax()) if floats else array.size // 2
    place = np.unravel_index(element, array.shape)
    old = array[place]
    if bit >= 0:
        array[place] = _flipped(old, bit)
    elif floats:
        array[place] = old * 2 if old else 1
    else:
        array[place] = not old if array.dtype.kind == "b" else old + 1


def bits_of(dtype: str) -> int:
    """Bits in which elements of a dtype may differ; a boolean has one."""
    return 1 if dtype == "bool" else 8 * DTYPES[dtype].itemsize


def _flipped(value: Any, bit: int) -> Any:
    """A NumPy scalar with one bit flipped."""
    data = bytearray(value.tobytes())  # little-endian: bit 0 is the least significant
    data[bit // 8] ^= 1 << bit % 8
    return np.frombuffer(bytes(data), value.dtype)[0]
