"""What each step of a job executes: its programs, its data sets, its schedule (COMMITMENTS 7.6,
7.7).

A job of format 1 has one program and one data set, and so the simplest timetable.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tallystick.commit.encoding import Writer, tag
from tallystick.commit.order import permute, records_at
from tallystick.commit.stream import (
    SEQUENTIAL,
    SHUFFLED,
    DataSet,
    JobProgram,
    Stream,
    check_names,
    check_range,
)
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

SEED_TAG = tag("program-seed/1")
MOST_PROGRAMS = MOST_DATA_SETS = 64
MOST_TURNS = 1024
# The program reads the random seed as i64 (NUMERICS 8.3), although its layout is wider.
RNG_SEED_MAX = (1 << 63) - 1


class ScheduleTurn(NamedTuple):
    """A number of consecutive steps that execute one program."""

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

    Raises UsageError for parts that do not fit together. Whether every step has a program of its
    batch's size depends on the run's length too: `check_sizes`.
    """

    programs: tuple[JobProgram, ...]
    data: tuple[DataSet, ...]
    turns: tuple[ScheduleTurn, ...]

    def __post_init__(self) -> None:
        check_range("number of programs", len(self.programs), 1, MOST_PROGRAMS)
        check_range("number of data sets", len(self.data), 0, MOST_DATA_SETS)
        check_range("number of turns", len(self.turns), 1, MOST_TURNS)
        check_names("program", [p.name for p in self.programs])
        check_names("data set", [d.name for d in self.data])
        check_names("stream", [s.name for s in self.streams])
        for program in self.programs:
            self._check_stream(program)
        for turn in self.turns:
            check_range("turn's program", turn.program, 0, len(self.programs) - 1)
            check_range("turn's number of steps", turn.steps, 1, LIMITS.steps)
        check_range("cycle of turns", self.cycle, 1, LIMITS.steps)
        if idle := set(range(len(self.programs))) - {t.program for t in self.turns}:
            raise UsageError(
                f"The program {self.programs[min(idle)].name} has no turn.", "Remove it."
            )
        self._check_passes()

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """The streams, in the order of their first programs."""
        return tuple(dict.fromkeys(program.stream for program in self.programs))

    @cached_property
    def plain(self) -> bool:
        """True where format 2 can say the timetable (COMMITMENTS 7.7.1)."""
        return (
            all(data.order == SHUFFLED for data in self.data)
            and all(program.is_alone for program in self.programs)
            and len(self.streams) == len(self.programs)
        )

    def _check_stream(self, program: JobProgram) -> None:
        stream = program.stream
        if stream.data is not None:
            check_range(f"data set of {program.name}", stream.data, 0, len(self.data) - 1)
            records = self.data[stream.data].record_count
            if stream.epoch_records is not None and stream.epoch_records > records:
                raise UsageError(
                    f"An epoch of {stream.name} has {stream.epoch_records} records, its data set "
                    f"{records}.",
                    "An epoch reads each record once at most.",
                )
        if program.batch_size not in (stream.batch_size, stream.last_size):
            raise UsageError(
                f"The program {program.name} has batches of {program.batch_size}, its stream "
                f"{stream.name} of {stream.batch_size}"
                + (f" and {stream.last_size}." if stream.is_uneven else "."),
                "Give it a size of its stream.",
            )

    # -- sizes ---------------------------------------------------------------------------------
    def _check_passes(self) -> None:
        """A pass reads each record once at most, and each step has its batch's size (7.7.4)."""
        for turn, number in zip(self.turns, self._before, strict=True):
            stream = self.programs[turn.program].stream
            if not stream.by_pass or stream.data is None:
                continue
            records = self.data[stream.data].record_count
            if number + turn.steps > stream.most(records):
                raise UsageError(
                    f"A pass of {number + turn.steps} batches of {stream.batch_size} has more than "
                    f"the {records} records of its data set.",
                    "Make the pass shorter.",
                )
            self._check_turn(turn, number)

    def check_sizes(self, steps: int) -> None:
        """Raise UsageError unless each of `steps` steps executes a program of the size of its batch
        (COMMITMENTS 7.7.5)."""
        for stream in self.streams:
            if stream.by_pass or not stream.is_uneven or stream.epoch is None:
                continue
            batches = self.batches(stream, self.cycle)
            if steps > self.cycle and batches % stream.epoch:
                raise UsageError(
                    f"The turns have {batches} batches of {stream.name}, which are no whole epochs "
                    f"of {stream.epoch}, and are repeated.",
                    "Let them have whole epochs, or all steps of the run.",
                )
        left = min(steps, self.cycle)
        for turn, before in zip(self.turns, self._before, strict=True):
            executed = min(turn.steps, left)
            left -= executed
            stream = self.programs[turn.program].stream
            if executed and not stream.by_pass:
                self._check_turn(ScheduleTurn(turn.program, executed), stream.first + before)

    def _check_turn(self, turn: ScheduleTurn, number: int) -> None:
        """Raise UsageError unless the turn's batches, from `number` on, have its program's size."""
        program = self.programs[turn.program]
        stream = program.stream
        if stream.epoch is None or not stream.is_uneven:
            return
        short = (number + turn.steps) // stream.epoch - number // stream.epoch
        if short != (turn.steps if program.batch_size == stream.last_size else 0):
            raise UsageError(
                f"The program {program.name}, of batches of {program.batch_size}, has a turn with "
                "a batch of another size.",
                f"Every batch but the last one of an epoch has {stream.batch_size} records, and "
                f"that one {stream.last_size}.",
            )

    # -- steps ---------------------------------------------------------------------------------
    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(turn.steps for turn in self.turns))

    @property
    def cycle(self) -> int:
        """The number of steps after which the turns are repeated."""
        return self._ends[-1]

    @cached_property
    def _before(self) -> list[int]:
        """Of each turn, the steps of its stream in earlier turns of the cycle, or of its pass."""
        counts, before = dict.fromkeys(self.streams, 0), []
        last: int | None = None
        for turn in self.turns:
            stream = self.programs[turn.program].stream
            goes_on = last not in (None, turn.program) and self.programs[last].stream == stream
            if stream.by_pass and not goes_on:
                counts[stream] = 0
            before.append(counts[stream])
            counts[stream] += turn.steps
            last = turn.program
        return before

    @cached_property
    def _per_cycle(self) -> list[int]:
        counts = [0] * len(self.programs)
        for turn in self.turns:
            counts[turn.program] += turn.steps
        return counts

    def at(self, step: int) -> Occasion:
        """What step `step` executes (COMMITMENTS 7.6.3, 7.7.3)."""
        cycles, rest = divmod(step, self.cycle)
        place = bisect_right(self._ends, rest)
        turn = self.turns[place]
        number = self._before[place] + rest - (self._ends[place] - turn.steps)
        stream = self.programs[turn.program].stream
        if not stream.by_pass:
            number += stream.first + cycles * self._stream_cycle[stream]
        return Occasion(turn.program, number)

    @cached_property
    def _stream_cycle(self) -> dict[Stream, int]:
        return {stream: self.batches(stream, self.cycle) for stream in self.streams}

    def rows(self, program: int, steps: int) -> int:
        """The rows of a table that the program reads in a run of `steps` steps (7.6.5, 7.7.6)."""
        stream = self.programs[program].stream
        if not stream.by_pass:
            return self.batches(stream, steps)
        pairs = zip(self.turns, self._before, strict=True)
        return max(b + t.steps for t, b in pairs if self.programs[t.program].stream == stream)

    def batches(self, stream: Stream, steps: int) -> int:
        """How many of the first `steps` steps execute a program of `stream`."""
        numbers = (n for n, program in enumerate(self.programs) if program.stream == stream)
        return self._executions(frozenset(numbers), steps)

    def count(self, program: int, steps: int) -> int:
        """How many of the first `steps` steps execute `program`."""
        return self._executions(frozenset((program,)), steps)

    def _executions(self, programs: frozenset[int], steps: int) -> int:
        """How many of the first `steps` steps execute one of `programs`."""
        cycles, rest = divmod(steps, self.cycle)
        found = cycles * sum(self._per_cycle[number] for number in programs)
        for turn, end in zip(self.turns, self._ends, strict=True):
            if turn.program in programs:
                found += min(max(rest - (end - turn.steps), 0), turn.steps)
        return found

    def trains(self, step: int) -> bool:
        """True if the step is one of training, and of no pass."""
        return not self.programs[self.at(step).program].by_pass

    def ends_pass(self, step: int) -> bool:
        """True if the step ends a pass, without a batch of its own."""
        return self.programs[self.at(step).program].ends_pass

    def trained(self, steps: int) -> int:
        """How many of the first `steps` steps are of training: of no program by pass."""
        return self._executions(self._training, steps)

    @cached_property
    def _training(self) -> frozenset[int]:
        return frozenset(n for n, program in enumerate(self.programs) if not program.by_pass)

    def steps_for(self, program: int, count: int) -> int:
        """The least number of steps of which `count` execute `program`.

        Where these are whole cycles, the rest of the last cycle is counted too, so that a pass
        which follows the last of them belongs to the run.
        """
        return self._steps_for(frozenset((program,)), count)

    def training_steps(self, count: int) -> int:
        """The same for `count` steps of training, whichever of its programs they execute; the pass
        that follows the last of them is counted too."""
        steps = self._steps_for(self._training, count)
        while steps % self.cycle:
            place = bisect_right(self._ends, steps % self.cycle)
            if self.turns[place].program in self._training:
                break
            steps += self.turns[place].steps
        return steps

    def _steps_for(self, programs: frozenset[int], count: int) -> int:
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

    # -- records -------------------------------------------------------------------------------
    def data_of(self, program: int) -> DataSet | None:
        """The data set that the program reads."""
        data = self.programs[program].data
        return None if data is None else self.data[data]

    def _place(self, occasion: Occasion) -> tuple[int, int, int | None, int]:
        """Of the batch: where it begins in the order, and its size; of the order: its seed, None
        for the records' own, and their number (7.7.4)."""
        stream, data = self.programs[occasion.program].stream, self.data_of(occasion.program)
        assert data is not None
        begin, size = stream.place(occasion.number, data.record_count)
        own = stream.by_pass or data.order == SEQUENTIAL
        return begin, size, None if own else data.order_seed, data.record_count

    def indices(self, occasion: Occasion) -> npt.NDArray[np.int64]:
        """The records of the batch, in order (COMMITMENTS 7.6.4, 7.7.4)."""
        begin, size, seed, records = self._place(occasion)
        return records_at(seed, records, begin, size)

    def record(self, occasion: Occasion, place: int) -> int:
        """The record at `place` of the batch (COMMITMENTS 7.6.4, 7.7.4)."""
        begin, _, seed, records = self._place(occasion)
        epoch, position = divmod(begin + place, records)
        return position if seed is None else permute(seed, epoch, position, records)

    # -- other timetables ----------------------------------------------------------------------
    def after(self, steps: int) -> Timetable:
        """The timetable of a run that goes on after `steps` steps: its turns begin where the run
        ended. Raises UsageError where that is inside of a pass, or would join two passes."""
        later = {
            s: s if s.by_pass else replace(s, first=s.first + self.batches(s, steps))
            for s in self.streams
        }
        programs = tuple(replace(p, stream=later[p.stream]) for p in self.programs)
        return replace(self, programs=programs, turns=self._turns_from(steps))

    def _turns_from(self, steps: int) -> tuple[ScheduleTurn, ...]:
        rest = steps % self.cycle
        if not rest:
            return self.turns
        place = bisect_right(self._ends, rest)
        turn = self.turns[place]
        done = rest - (self._ends[place] - turn.steps)
        first, last = (self.programs[self.turns[end].program] for end in (0, -1))
        joined = first.by_pass and first.stream == last.stream and first != last
        at = self.at(steps)
        if joined or (self.programs[at.program].by_pass and at.number):
            raise UsageError(
                f"The run ended inside of a pass, after {steps} of its steps.",
                "Only a run that ends between two passes is continued.",
            )
        begun = (ScheduleTurn(turn.program, done),) if done else ()
        rest_of_it = ScheduleTurn(turn.program, turn.steps - done)
        return (rest_of_it, *self.turns[place + 1 :], *self.turns[:place], *begun)


def program_seed(rng_seed: int, timetable: Timetable, program: int) -> int:
    """The random seed that a program reads: the job's in the first stream, one of its own in each
    other (COMMITMENTS 7.6.6, 7.7.6)."""
    stream = timetable.programs[program].stream
    if stream == timetable.streams[0]:
        return rng_seed
    word = Writer(SEED_TAG).u64(rng_seed).text(stream.name).digest()[:8]
    return int.from_bytes(word, "little") & RNG_SEED_MAX
