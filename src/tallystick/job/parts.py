"""The parts of a job to be written: programs, data sets and turns, before they have digests.

One step program and one data set make a job of format 1. Validation whose numbers are committed,
micro-batches and long records make one of format 2 (COMMITMENTS 7.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tallystick.commit.data import DataSchema
from tallystick.commit.job import JobCommitment2
from tallystick.commit.records import is_long, records_root
from tallystick.commit.stream import RUN_ON, SHUFFLED, DataSet, JobProgram, Stream
from tallystick.commit.tensor import Array
from tallystick.commit.timetable import Timetable, Turn
from tallystick.data.frozen import Frozen
from tallystick.disk.files import share_or_copy
from tallystick.disk.tensorfile import write_tensors
from tallystick.errors import UsageError
from tallystick.job.job import DEFAULT_INTERVAL
from tallystick.program.ir import Program
from tallystick.program.validation import (
    StopRule,
    decision_program,
    metric_names,
    pass_program,
    validation_slots,
    with_slots,
)

STEP, VALIDATE, DECIDE = "step", "validate", "decide"
TRAIN, HELD_OUT = "train", "validation"
# An interval between checkpoints below this many steps hashes too often.
_LEAST_INTERVAL = 5


@dataclass(frozen=True)
class Part:
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
    ) -> Part:
        """A program with a stream of its own."""
        stream = Stream(name, data, batch_size, by_pass, RUN_ON, first)
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

    programs: tuple[Part, ...]
    data: tuple[Records, ...]
    turns: tuple[Turn, ...] = (Turn(0, 1),)
    slots: Mapping[str, Array] = field(default_factory=dict)
    stops: bool = False

    def timetable(self) -> Timetable:
        """The timetable, with the digests of programs and records. Raises UsageError."""
        programs = tuple(part.entry() for part in self.programs)
        return Timetable(programs, tuple(records.entry() for records in self.data), self.turns)

    @property
    def simple(self) -> bool:
        """True where a job of format 1 can say all this."""
        if len(self.programs) != 1 or len(self.data) != 1 or self.slots:
            return False
        (first,), (records,) = self.programs, self.data
        return (
            not first.program.section
            and not first.stream.first
            and self.timetable().plain
            and not is_long(records.schema)
        )


def interval_for(timetable: Timetable) -> int:
    """A checkpoint interval for the turns, so that every pass ends on a checkpoint."""
    cycle = timetable.cycle
    if not any(program.by_pass for program in timetable.programs):
        return DEFAULT_INTERVAL
    divisors = [d for d in range(_LEAST_INTERVAL, DEFAULT_INTERVAL + 1) if cycle % d == 0]
    return max(divisors, default=cycle)


def validation_sentence(c: JobCommitment2, held_out: int) -> str:
    """What a person should know of committed validation: its pass, and what it leaves out."""
    timetable = c.timetable
    every, batches, size = (
        timetable.trained(timetable.cycle),
        timetable.turns[-2].steps,
        timetable.programs[-2].batch_size,
    )
    told = f"{batches} batches of {size} after every {every} steps"
    if left := held_out - batches * size:
        told += f"; the last {left} held-out records are not used"
    if left := timetable.trained(c.steps) % every:
        told += f"; the last {left} steps are not followed by a pass"
    told += f"; a checkpoint every {c.checkpoint_interval} steps, passes counted"
    if timetable.cycle % c.checkpoint_interval:
        told += ", so that the best weights cannot be exported"
    return told


def with_validation(
    parts: Parts,
    evaluation: Program,
    held_out: Records,
    batch_size: int,
    every: int,
    rule: StopRule,
) -> Parts:
    """`parts` of step programs, with a pass over `held_out` after every `every` of their steps.

    The pass takes the whole batches of `batch_size` records, in their order. `every` is a whole
    number of rounds of the turns. Raises UsageError.
    """
    steps = parts.programs
    a_round = sum(turn.steps for turn in parts.turns)
    if every < 1:
        raise UsageError(
            "Committed validation needs a number of steps between passes.",
            "Pass evaluate_every=N, on the command line --evaluate-every N.",
        )
    if every % a_round:
        raise UsageError(
            f"{every} steps between passes are no whole number of rounds of {a_round} steps.",
            f"Pass evaluate_every={max(1, every // a_round) * a_round}.",
        )
    if steps[0].program.contract != evaluation.contract:
        raise UsageError("Step and evaluation are under two contracts.", "Capture both under one.")
    batches = len(next(iter(held_out.columns.values()))) // batch_size
    metrics = metric_names(evaluation)
    slots = validation_slots(metrics)
    types = {name: type_ for name, (type_, _) in slots.items()}
    trained = [replace(step, program=with_slots(step.program, types)) for step in steps]
    state, contract = trained[0].program.state_types, trained[0].program.contract
    passed = pass_program(evaluation, state)
    decided = decision_program(contract, state, metrics, batches, rule)
    rounds = (Turn(0, every),) if len(parts.turns) == 1 else parts.turns * (every // a_round)
    return Parts(
        (
            *trained,
            Part.alone(VALIDATE, passed, len(parts.data), batch_size, by_pass=True),
            Part.alone(DECIDE, decided, None, 1, by_pass=True),
        ),
        (*parts.data, held_out),
        (*rounds, Turn(len(steps), batches), Turn(len(steps) + 1, 1)),
        {name: first for name, (_, first) in slots.items()},
        rule.patience is not None,
    )
