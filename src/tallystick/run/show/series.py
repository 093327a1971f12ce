"""The losses of a run for people: those of its training steps, and its validation losses.

A job of format 2 has steps that train and steps of passes (COMMITMENTS 7.6). People count the
first. A pass that ends with a step without a batch, its decision, has that step's loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.commit.timetable import Timetable
from tallystick.job.job import Job


@dataclass(frozen=True)
class Series:
    """`training` has the loss of each training step; `validation` pairs of a number of training
    steps and the loss of the pass after them. `by_stream` has the training losses of each stream
    whose programs train; in formats 1 and 2 that is each such program."""

    training: tuple[float, ...]
    validation: tuple[tuple[int, float], ...]
    by_stream: dict[str, tuple[float, ...]]


def series(job: Job, losses: Sequence[float], evaluations: Sequence[tuple[int, float]]) -> Series:
    """The series of a run with these `losses`, one for each step. `evaluations` are the validation
    losses beside the run, by step."""
    timetable = job.commitment.timetable
    training: list[float] = []
    by_stream: dict[str, list[float]] = {s.name: [] for s in timetable.streams if not s.by_pass}
    validation: list[tuple[int, float]] = []
    for step, loss in enumerate(losses):
        if trains(timetable, step):
            training.append(loss)
            by_stream[timetable.programs[timetable.at(step).program].stream.name].append(loss)
        elif decides(timetable, step):
            validation.append((len(training), loss))
    if not any(program.by_pass for program in timetable.programs):
        validation = list(evaluations)
    named = {name: tuple(found) for name, found in by_stream.items()}
    return Series(tuple(training), tuple(validation), named)


def seconds_a_step(sessions: Sequence[Mapping[str, object]]) -> float | None:
    """The time of a step, by the trainer's word: over the sessions that ended as they should and
    executed steps; None without one."""
    steps = spent = 0
    for session in sessions:
        start, end, time = (session.get(k) for k in ("start_step", "end_step", "milliseconds"))
        if isinstance(start, int) and isinstance(end, int) and isinstance(time, int):
            steps, spent = steps + max(0, end - start), spent + max(0, time)
    return spent / 1000 / steps if steps and spent else None


def trains(timetable: Timetable, step: int) -> bool:
    """True if the step is one of training, and of no pass."""
    return not timetable.programs[timetable.at(step).program].by_pass


def decides(timetable: Timetable, step: int) -> bool:
    """True if the step ends a pass, without a batch of its own."""
    program = timetable.programs[timetable.at(step).program]
    return program.by_pass and program.data is None


def trained(timetable: Timetable, steps: int) -> int:
    """The number of training steps among the first `steps`."""
    return timetable.trained(steps)
