"""What each step of a job executes: its programs, its data sets, its schedule (COMMITMENTS 7.6).

A job of format 1 has one program and one data set, and so the simplest timetable.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tallystick.commit.encoding import U64_MAX, Writer, check_hash, tag
from tallystick.commit.order import batch_indices, permute
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

SEED_TAG = tag("program-seed/1")
MOST_PROGRAMS = MOST_DATA_SETS = 64
MOST_TURNS = 1024
MOST_MICRO_BATCHES = 1 << 16
# The program reads the random seed as i64 (NUMERICS 8.3), although its layout is wider.
RNG_SEED_MAX = (1 << 63) - 1

# A name is part of a file's name.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}", re.ASCII)


def check_range(what: str, value: object, low: int, high: int) -> None:
    """Raise UsageError unless `value` is an integer of low to high."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(
            f"The job's {what} is {value!r}.", f"Choose an integer from {low} to {high}."
        )


def check_names(what: str, names: Sequence[str]) -> None:
    """Raise UsageError unless the names are short, plain and different."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name[:80]!r} names no {what} of a job.",
                "Use at most 40 of a-z, 0-9 and -, a letter first.",
            )
    if len(set(names)) != len(names):
        raise UsageError(f"Two {what}s of the job have one name.", "Rename one.")


@dataclass(frozen=True)
class DataSet:
    """Records that programs read: their root, their number, and the seed of their order."""

    name: str
    root: bytes
    record_count: int
    order_seed: int

    def __post_init__(self) -> None:
        check_hash(self.root, "data root")
        check_range("record_count", self.record_count, 0, LIMITS.records)
        check_range("order_seed", self.order_seed, 0, U64_MAX)


@dataclass(frozen=True)
class JobProgram:
    """A program of a job, and what it reads.

    `data` is the number of its data set, None for a program without a batch. `micro_batches` is V
    of PROGRAM 6. A program `by_pass` begins anew with its first batch in each of its turns; another
    one goes on through the whole run, from batch number `first`.
    """

    name: str
    digest: bytes
    data: int | None
    batch_size: int
    micro_batches: int = 1
    by_pass: bool = False
    first: int = 0

    def __post_init__(self) -> None:
        check_hash(self.digest, "program digest")
        check_range("batch_size", self.batch_size, 1, LIMITS.batch_size)
        check_range("number of micro-batches", self.micro_batches, 1, MOST_MICRO_BATCHES)
        check_range("first batch", self.first, 0, LIMITS.steps)
        if self.batch_size % self.micro_batches:
            raise UsageError(
                f"{self.micro_batches} micro-batches do not divide a batch of {self.batch_size}.",
                "Choose a number that divides it.",
            )
        if self.by_pass and self.first:
            raise UsageError(
                f"The program {self.name} begins each pass with its first batch.", "Leave first 0."
            )


class Turn(NamedTuple):
    """So many steps, one after the other, execute one program."""

    program: int
    steps: int


class Occasion(NamedTuple):
    """What a step executes: the program's number in the job, and the number of its batch.

    The batch's number is also the second half of the random key, and gives the row of a table.
    """

    program: int
    number: int


@dataclass(frozen=True)
class Timetable:
    """The programs, data sets and turns of a job. The turns are repeated until the run ends.

    Raises UsageError for parts that do not fit together.
    """

    programs: tuple[JobProgram, ...]
    data: tuple[DataSet, ...]
    turns: tuple[Turn, ...]

    def __post_init__(self) -> None:
        check_range("number of programs", len(self.programs), 1, MOST_PROGRAMS)
        check_range("number of data sets", len(self.data), 0, MOST_DATA_SETS)
        check_range("number of turns", len(self.turns), 1, MOST_TURNS)
        check_names("program", [p.name for p in self.programs])
        check_names("data set", [d.name for d in self.data])
        for program in self.programs:
            if program.data is not None:
                check_range(f"data set of {program.name}", program.data, 0, len(self.data) - 1)
        for turn in self.turns:
            check_range("turn's program", turn.program, 0, len(self.programs) - 1)
            check_range("turn's number of steps", turn.steps, 1, LIMITS.steps)
            self._check_pass(turn)
        check_range("cycle of turns", self.cycle, 1, LIMITS.steps)
        if idle := set(range(len(self.programs))) - {t.program for t in self.turns}:
            raise UsageError(
                f"The program {self.programs[min(idle)].name} has no turn.", "Remove it."
            )

    def _check_pass(self, turn: Turn) -> None:
        """A pass reads each record once at most."""
        program = self.programs[turn.program]
        if program.by_pass and program.data is not None:
            records = self.data[program.data].record_count
            if turn.steps * program.batch_size > records:
                raise UsageError(
                    f"A pass of {turn.steps} batches of {program.batch_size} has more than the "
                    f"{records} records of its data set.",
                    "Make the pass shorter.",
                )

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(turn.steps for turn in self.turns))

    @property
    def cycle(self) -> int:
        """The number of steps after which the turns are repeated."""
        return self._ends[-1]

    @cached_property
    def _before(self) -> list[int]:
        """Of each turn, the steps of its program in earlier turns of the cycle."""
        counts, before = [0] * len(self.programs), []
        for turn in self.turns:
            before.append(counts[turn.program])
            counts[turn.program] += turn.steps
        return before

    @cached_property
    def _per_cycle(self) -> list[int]:
        counts = [0] * len(self.programs)
        for turn in self.turns:
            counts[turn.program] += turn.steps
        return counts

    def at(self, step: int) -> Occasion:
        """What step `step` executes (COMMITMENTS 7.6.3)."""
        cycles, rest = divmod(step, self.cycle)
        place = bisect_right(self._ends, rest)
        turn = self.turns[place]
        inside = rest - (self._ends[place] - turn.steps)
        if self.programs[turn.program].by_pass:
            return Occasion(turn.program, inside)
        earlier = cycles * self._per_cycle[turn.program] + self._before[place]
        return Occasion(turn.program, self.programs[turn.program].first + earlier + inside)

    def rows(self, program: int, steps: int) -> int:
        """The rows of a table that the program reads in a run of `steps` steps (7.6.5)."""
        if self.programs[program].by_pass:
            return max(turn.steps for turn in self.turns if turn.program == program)
        return self.count(program, steps)

    def count(self, program: int, steps: int) -> int:
        """How many of the first `steps` steps execute `program`."""
        cycles, rest = divmod(steps, self.cycle)
        found = cycles * self._per_cycle[program]
        for turn, end in zip(self.turns, self._ends, strict=True):
            if turn.program == program:
                found += min(max(rest - (end - turn.steps), 0), turn.steps)
        return found

    def trained(self, steps: int) -> int:
        """How many of the first `steps` steps are of training: of no program by pass."""
        return sum(self.count(number, steps) for number in self._training)

    @cached_property
    def _training(self) -> tuple[int, ...]:
        return tuple(n for n, program in enumerate(self.programs) if not program.by_pass)

    def steps_for(self, program: int, count: int) -> int:
        """The least number of steps of which `count` execute `program`.

        Where these are whole cycles, the rest of the last cycle is counted too, so that a pass
        which follows the last of them belongs to the run.
        """
        return self._steps_for((program,), count)

    def training_steps(self, count: int) -> int:
        """The same for `count` steps of training, whichever of its programs they execute."""
        return self._steps_for(self._training, count)

    def _steps_for(self, programs: tuple[int, ...], count: int) -> int:
        cycles, rest = divmod(count, sum(self._per_cycle[number] for number in programs))
        steps = cycles * self.cycle
        for turn in self.turns:
            if not rest:
                break
            counts = turn.program in programs
            take = min(rest, turn.steps) if counts else turn.steps
            steps += take
            rest -= take if counts else 0
        return steps

    def row(self, occasion: Occasion) -> int:
        """The row of a table that is read on this occasion (7.6.5)."""
        return occasion.number - self.programs[occasion.program].first

    def data_of(self, program: int) -> DataSet | None:
        """The data set that the program reads."""
        data = self.programs[program].data
        return None if data is None else self.data[data]

    def indices(self, occasion: Occasion) -> npt.NDArray[np.int64]:
        """The records of the batch, in order (COMMITMENTS 7.6.4)."""
        program, data = self.programs[occasion.program], self.data_of(occasion.program)
        assert data is not None
        size = program.batch_size
        if program.by_pass:
            return np.arange(occasion.number * size, (occasion.number + 1) * size, dtype=np.int64)
        return batch_indices(data.order_seed, data.record_count, occasion.number, size)

    def record(self, occasion: Occasion, place: int) -> int:
        """The record at `place` of the batch (COMMITMENTS 7.6.4)."""
        program, data = self.programs[occasion.program], self.data_of(occasion.program)
        assert data is not None
        position = occasion.number * program.batch_size + place
        if program.by_pass:
            return position
        epoch, position = divmod(position, data.record_count)
        return permute(data.order_seed, epoch, position, data.record_count)


def program_seed(rng_seed: int, timetable: Timetable, program: int) -> int:
    """The random seed that a program reads: the job's for program 0, one of its own for each other
    (COMMITMENTS 7.6.6)."""
    if not program:
        return rng_seed
    name = timetable.programs[program].name
    word = Writer(SEED_TAG).u64(rng_seed).text(name).digest()[:8]
    return int.from_bytes(word, "little") & RNG_SEED_MAX
