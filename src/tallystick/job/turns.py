"""The turns of a job: from the program of each step, and with passes between them (COMMITMENTS
7.6.3, 7.7.5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, groupby
from math import gcd, lcm

from tallystick.commit.timetable import MOST_TURNS, ScheduleTurn, Timetable
from tallystick.errors import UsageError


def turns_of(programs: Sequence[int], unit: int) -> tuple[ScheduleTurn, ...]:
    """The turns of steps that execute `programs`, one number for each step.

    They are those of the shortest beginning that the steps repeat, of a whole number of `unit`
    steps; of all steps where there is none. Raises UsageError where they are too many.
    """
    steps = programs[: _period(programs, unit)]
    return _few(tuple(ScheduleTurn(n, sum(1 for _ in same)) for n, same in groupby(steps)))


def _period(programs: Sequence[int], unit: int) -> int:
    """The least multiple of `unit` after which the steps are the same again; else their number."""
    # Of each beginning the longest end of it that is a beginning too (Knuth, Morris, Pratt).
    ends = [0] * len(programs)
    for at in range(1, len(programs)):
        length = ends[at - 1]
        while length and programs[at] != programs[length]:
            length = ends[length - 1]
        ends[at] = length + (programs[at] == programs[length])
    length = len(programs)
    while length:
        length = ends[length - 1]
        if (len(programs) - length) % unit == 0:
            return len(programs) - length
    return len(programs)


def with_passes(
    turns: Sequence[ScheduleTurn], every: int, passes: Sequence[ScheduleTurn], steps: int
) -> tuple[ScheduleTurn, ...]:
    """`turns` of training, repeated, with the turns `passes` after each `every` of their steps.

    The cycle ends where both begin anew; with the run of `steps` training steps, where that is
    earlier. It has one pass at least. Raises UsageError where the turns are too many.
    """
    whole = max(every, min(lcm(sum(turn.steps for turn in turns), every), steps))
    if len(turns) == 1:
        turns = [ScheduleTurn(turns[0].program, whole)]
    found: list[ScheduleTurn] = []
    done = 0
    for turn in cycle(turns):
        left = turn.steps
        while left and done < whole:
            taken = min(left, every - done % every, whole - done)
            found.append(ScheduleTurn(turn.program, taken))
            left, done = left - taken, done + taken
            if done % every == 0:
                found += passes
        if done == whole:
            return _few(tuple(found))
    raise AssertionError("turns without a step")


def _few(turns: tuple[ScheduleTurn, ...]) -> tuple[ScheduleTurn, ...]:
    if len(turns) > MOST_TURNS:
        raise UsageError(
            f"The job's schedule would have {len(turns)} turns, but at most {MOST_TURNS} are "
            "allowed.",
            "Repeat the sequence of programs sooner, make the run shorter, or evaluate after "
            "whole epochs.",
        )
    return turns


def pass_period(timetable: Timetable) -> int:
    """The greatest number of steps of which each end of a pass is a multiple, and of the cycle."""
    end, found = 0, timetable.cycle
    for turn in timetable.turns:
        end += turn.steps
        program = timetable.programs[turn.program]
        if program.by_pass and program.data is None:
            found = gcd(found, end)
    return found
