"""What the programs of a job read: data sets, and streams of batches of them (COMMITMENTS 7.7).

The programs of a stream go through its records together. In formats 1 and 2 every program is a
stream of its own, shuffled, whose batches run on from one epoch into the next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.commit.encoding import U64_MAX, check_hash
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

MOST_MICRO_BATCHES = 1 << 16
# In the order of their numbers in the job digest.
ORDERS = SHUFFLED, SEQUENTIAL = "shuffled", "sequential"
# What people say of the end of an epoch: a batch goes on in the next one, records that make no
# whole batch are left out, the last batch is short.
ENDS = RUN_ON, DROP, SHORT = "run on", "drop", "short"

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


def check_choice(what: str, value: object, choices: Sequence[str]) -> None:
    """Raise UsageError unless `value` is one of `choices`."""
    if value not in choices:
        raise UsageError(f"{what} is {str(value)[:80]!r}.", f"Say {', '.join(map(repr, choices))}.")


@dataclass(frozen=True)
class DataSet:
    """Records that programs read: their root and number, and the order in which streams have them.

    `order_seed` keys the order `shuffled`; a `sequential` set keeps one for what may come later.
    """

    name: str
    root: bytes
    record_count: int
    order_seed: int
    order: str = SHUFFLED

    def __post_init__(self) -> None:
        check_hash(self.root, "data root")
        check_range("record_count", self.record_count, 0, LIMITS.records)
        check_range("order_seed", self.order_seed, 0, U64_MAX)
        check_choice("The order of the records", self.order, ORDERS)


@dataclass(frozen=True)
class Stream:
    """Batches of `batch_size` records of one data set, which programs of a job read in turn.

    `data` is the number of the data set, None for a stream without batches. A stream `by_pass`
    begins anew in each pass, and reads its records in sequence; another one goes on through the
    whole run, from batch number `first`. An epoch reads the first `epoch_records` of its order, and
    its last batch has what is left of them; with None a batch goes on in the next epoch.
    """

    name: str
    data: int | None
    batch_size: int
    by_pass: bool = False
    epoch_records: int | None = None
    first: int = 0

    def __post_init__(self) -> None:
        check_range("batch_size", self.batch_size, 1, LIMITS.batch_size)
        check_range("first batch", self.first, 0, LIMITS.steps)
        if self.epoch_records is not None:
            most = 0 if self.data is None else LIMITS.records
            check_range(
                f"number of records in an epoch of {self.name}", self.epoch_records, 1, most
            )
        if self.by_pass and self.first:
            raise UsageError(
                f"{self.name} begins each pass with its first batch.", "Leave first 0."
            )

    @property
    def epoch(self) -> int | None:
        """The batches of an epoch, None where epochs end in the middle of batches (7.7.4)."""
        return None if self.epoch_records is None else -(-self.epoch_records // self.batch_size)

    @property
    def last_size(self) -> int:
        """The records of the last batch of an epoch (7.7.4)."""
        if self.epoch_records is None:
            return self.batch_size
        return (self.epoch_records - 1) % self.batch_size + 1

    @property
    def is_uneven(self) -> bool:
        """True where the last batch of an epoch has fewer records than the others."""
        return self.last_size < self.batch_size

    def most(self, records: int) -> int:
        """The steps that a pass over `records` records may have (7.7.4)."""
        return records // self.batch_size if self.epoch is None else self.epoch

    def place(self, number: int, records: int) -> tuple[int, int]:
        """The place in the order at which batch `number` begins, and its size (7.7.4)."""
        if self.epoch is None or self.epoch_records is None:
            return number * self.batch_size, self.batch_size
        epoch, number = divmod(number, self.epoch)
        begin = number * self.batch_size
        return epoch * records + begin, min(self.batch_size, self.epoch_records - begin)


@dataclass(frozen=True)
class JobProgram:
    """A program of a job, and the stream that it reads with batches of `batch_size` records.

    `micro_batches` is V of PROGRAM 6.
    """

    name: str
    digest: bytes
    stream: Stream
    batch_size: int
    micro_batches: int = 1

    def __post_init__(self) -> None:
        check_hash(self.digest, "program digest")
        check_range("batch_size", self.batch_size, 1, LIMITS.batch_size)
        check_range("number of micro-batches", self.micro_batches, 1, MOST_MICRO_BATCHES)
        if self.batch_size % self.micro_batches:
            raise UsageError(
                f"{self.micro_batches} micro-batches do not divide a batch of {self.batch_size}.",
                "Choose a number that divides it.",
            )

    @classmethod
    def alone(
        cls,
        name: str,
        digest: bytes,
        data: int | None,
        batch_size: int,
        micro_batches: int = 1,
        by_pass: bool = False,
        first: int = 0,
    ) -> JobProgram:
        """A program with a stream of its own, as every one of format 2 has (7.6.1)."""
        stream = Stream(name, data, batch_size, by_pass, None, first)
        return cls(name, digest, stream, batch_size, micro_batches)

    @property
    def is_alone(self) -> bool:
        """True where format 2 can say the program and its stream, if no other program reads it."""
        return self.stream.name == self.name and self.stream.epoch is None

    @property
    def data(self) -> int | None:
        return self.stream.data

    @property
    def by_pass(self) -> bool:
        return self.stream.by_pass

    @property
    def ends_pass(self) -> bool:
        """True where it ends a pass, without a batch of its own."""
        return self.by_pass and self.data is None

    @property
    def first(self) -> int:
        return self.stream.first

    @property
    def rows(self) -> int:
        """The records of a micro-batch."""
        return self.batch_size // self.micro_batches
