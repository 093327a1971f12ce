"""The parts of a job to be written: programs, data sets and turns, before they have digests.

One step program and one data set make a job of format 1. Validation whose numbers are committed,
micro-batches and long records make one of format 2 (COMMITMENTS 7.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import cycle, groupby
from math import gcd, lcm
from pathlib import Path

from tallystick.commit.data import DataSchema
from tallystick.commit.job import JobCommitment2
from tallystick.commit.records import is_long, records_root
from tallystick.commit.stream import SHUFFLED, DataSet, JobProgram, Stream
from tallystick.commit.tensor import Array
from tallystick.commit.timetable import MOST_TURNS, ScheduleTurn, Timetable
from tallystick.data.frozen import Frozen
from tallystick.disk.files import share_or_copy
from tallystick.disk.tensorfile import write_tensors
from tallystick.errors import UsageError
from tallystick.job.job import DEFAULT_INTERVAL
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.validation import (
    StopRule,
    decision_program,
    metric_names,
    pass_program,
    validation_slots,
    with_slots,
)


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
        if timetable.programs[turn.program].ends_pass:
            found = gcd(found, end)
    return found


STEP, VALIDATE, DECIDE = "step", "validate", "decide"
VALIDATE_SHORT = "validate-short"
TRAIN, HELD_OUT = "train", "validation"
# An interval between checkpoints below this many steps hashes too often.
_LEAST_INTERVAL = 5


@dataclass(frozen=True)
class ProgramPart:
    """A program, and what it reads (COMMITMENTS 7.6.1, 7.7.1)."""

    name: str
    program: Program
    stream: Stream
    batch_size: int
    micro_batches: int = 1

    @classmethod
    def alone(
        cls,
        name: str,
        program: Program,
        data: int | None,
        batch_size: int,
        micro_batches: int = 1,
        by_pass: bool = False,
        first: int = 0,
    ) -> ProgramPart:
        """A program with a stream of its own."""
        stream = Stream(name, data, batch_size, by_pass, None, first)
        return cls(name, program, stream, batch_size, micro_batches)

    @property
    def data(self) -> int | None:
        return self.stream.data

    def entry(self) -> JobProgram:
        """The program as the commitment names it."""
        digest = self.program.digest()
        return JobProgram(self.name, digest, self.stream, self.batch_size, self.micro_batches)


@dataclass(frozen=True)
class Records:
    """A data set: its columns, one array (N, *field shape) for each field of `schema`.

    The columns of a `frozen` data set are memory-mapped, and its root is known.
    """

    name: str
    schema: DataSchema
    columns: Mapping[str, Array]
    order_seed: int
    frozen: Frozen | None = None
    order: str = SHUFFLED

    @property
    def count(self) -> int:
        """The number of records."""
        return len(next(iter(self.columns.values())))

    @property
    def root(self) -> bytes:
        """The data root."""
        if self.frozen is not None:
            return self.frozen.root
        return records_root(self.schema, self.columns)

    def entry(self) -> DataSet:
        """The data set as the commitment names it."""
        return DataSet(self.name, self.root, self.count, self.order_seed, self.order)

    def write(self, path: Path) -> None:
        """Write the records' file. Raises StorageError."""
        if self.frozen is None:
            write_tensors(path, self.columns)
        else:
            share_or_copy(self.frozen.file, path, self.frozen.directory)


@dataclass(frozen=True)
class Parts:
    """All programs and data sets of a job, its turns, and the slots that the step's own state does
    not have, with their first values."""

    programs: tuple[ProgramPart, ...]
    data: tuple[Records, ...]
    turns: tuple[ScheduleTurn, ...] = (ScheduleTurn(0, 1),)
    slots: Mapping[str, Array] = field(default_factory=dict)
    stops: bool = False

    @cached_property
    def timetable(self) -> Timetable:
        """The timetable, with the digests of programs and records. Raises UsageError."""
        programs = tuple(part.entry() for part in self.programs)
        return Timetable(programs, tuple(records.entry() for records in self.data), self.turns)

    @property
    def training(self) -> int:
        """The number of programs that train; they are the first ones."""
        return sum(not part.stream.by_pass for part in self.programs)

    @property
    def simple(self) -> bool:
        """True where a job of format 1 can say all this."""
        if len(self.programs) != 1 or len(self.data) != 1 or self.slots:
            return False
        (first,), (records,) = self.programs, self.data
        return (
            not first.program.section
            and not first.stream.first
            and self.timetable.plain
            and not is_long(records.schema)
        )


def batch_size_of(batch: Mapping[str, TensorType]) -> int:
    """The records of a captured batch. Raises UsageError where its tensors differ."""
    sizes = {t.shape[0] if t.shape else 0 for t in batch.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise UsageError(
            "The tensors of the captured batch have different sizes along their first axis.",
            "Capture with tensors of shape (batch, ...), all with the same batch size.",
        )
    return sizes.pop()


def interval_for(timetable: Timetable) -> int:
    """A checkpoint interval for the turns, so that every pass ends on a checkpoint."""
    if not any(program.by_pass for program in timetable.programs):
        return DEFAULT_INTERVAL
    period = pass_period(timetable)
    divisors = [d for d in range(_LEAST_INTERVAL, DEFAULT_INTERVAL + 1) if period % d == 0]
    return max(divisors, default=period)


def validation_sentence(c: JobCommitment2) -> str:
    """What a person should know of committed validation: its pass, and what it leaves out."""
    timetable = c.timetable
    decide = len(timetable.programs) - 1
    stream, data = timetable.programs[decide - 1].stream, timetable.data_of(decide - 1)
    assert data is not None
    every = timetable.trained(timetable.steps_for(decide, 1))
    batches = timetable.rows(decide - 1, c.steps)
    told = f"{batches} batches of {stream.batch_size} after every {every} steps"
    if stream.is_uneven:
        told += f", the last one of {stream.last_size}"
    elif left := data.record_count - batches * stream.batch_size:
        told += f"; the last {left} held-out records are not used"
    if left := timetable.trained(c.steps) % every:
        told += f"; the last {left} steps are not followed by a pass"
    told += f"; a checkpoint every {c.checkpoint_interval} steps, passes counted"
    if pass_period(timetable) % c.checkpoint_interval:
        told += ", so that the best weights cannot be exported"
    return told


def with_validation(
    parts: Parts,
    evaluation: Program,
    held_out: Records,
    batch_size: int,
    every: int,
    rule: StopRule,
    count: int,
    short: Program | None = None,
) -> Parts:
    """`parts` of step programs, with a pass over `held_out` after every `every` of their `count`
    steps.

    The pass takes the batches of `batch_size` records, in their order. `short` is the evaluation of
    a last batch that has fewer (PROGRAM 7.4); without it these records are left out. Raises
    UsageError.
    """
    steps = parts.programs
    if every < 1:
        raise UsageError(
            "Committed validation needs the number of steps between two validations.",
            "Pass evaluate_every=N, or --evaluate-every N on the command line.",
        )
    if steps[0].program.contract != evaluation.contract:
        raise UsageError(
            "The step and the evaluation are under different contracts.",
            "Capture both under one contract.",
        )
    metrics = metric_names(evaluation)
    slots = validation_slots(metrics)
    types = {name: type_ for name, (type_, _) in slots.items()}
    trained = [replace(step, program=with_slots(step.program, types)) for step in steps]
    state, contract = trained[0].program.state_types, trained[0].program.contract
    data, first = len(parts.data), len(trained)
    batches, last = divmod(held_out.count, batch_size)
    if short is None:
        passed = [
            ProgramPart.alone(VALIDATE, pass_program(evaluation, state), data, batch_size, 1, True)
        ]
        passes = [ScheduleTurn(first, batches)]
    else:
        stream = Stream(VALIDATE, data, batch_size, True, held_out.count)
        if metric_names(short) != metrics:
            raise UsageError(
                "The short evaluation has other metrics than the evaluation.",
                "Capture both with the same loss.",
            )
        passed = [
            ProgramPart(VALIDATE, pass_program(evaluation, state, batch_size), stream, batch_size),
            ProgramPart(VALIDATE_SHORT, pass_program(short, state, last), stream, last),
        ]
        passes = [ScheduleTurn(first, batches), ScheduleTurn(first + 1, 1)]
    means = batches if short is None else held_out.count
    decided = decision_program(contract, state, metrics, means, rule)
    programs = (*trained, *passed, ProgramPart.alone(DECIDE, decided, None, 1, by_pass=True))
    return Parts(
        programs,
        (*parts.data, held_out),
        with_passes(parts.turns, every, [*passes, ScheduleTurn(len(programs) - 1, 1)], count),
        {name: value for name, (_, value) in slots.items()},
        rule.patience is not None,
    )
