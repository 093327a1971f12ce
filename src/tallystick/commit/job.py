"""The job digest: every field that fixes the computation, in one layout (COMMITMENTS 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tallystick.commit.encoding import U64_MAX, Writer, check_hash, encode_name, tag
from tallystick.commit.stream import ORDERS, DataSet, JobProgram, check_range
from tallystick.commit.timetable import RNG_SEED_MAX, ScheduleTurn, Timetable, program_seed
from tallystick.errors import UnsupportedVersionError, UsageError
from tallystick.limits import LIMITS

JOB_TAG = tag("job/1")
JOB2_TAG, JOB3_TAG = tag("job/2"), tag("job/3")
SCALARS_TAG = tag("scalars/1")
FORMAT_VERSION = 1
FORMAT_VERSION_2, FORMAT_VERSION_3 = 2, 3
# The slot that ends a run of format 2 where it is true, and the digest of a job that continues
# none (COMMITMENTS 7.6.7, 7.6.8).
STOP_SLOT = "control.stop"
CONTINUES_NONE = bytes(32)

ScalarTable = float | Sequence[float]


def scalars_digest(tables: Mapping[str, ScalarTable]) -> bytes:
    """Digest of the job's per-step scalars (COMMITMENTS 7.3).

    Each is a binary64 constant, or a table with one binary64 per step (entry t is for step t).
    The tables are sorted by the UTF-8 bytes of their names.
    """
    if len(tables) > LIMITS.scalar_tables:
        raise UsageError(f"{len(tables)} scalar tables are too many.", "Merge some.")
    out = Writer(SCALARS_TAG).u64(len(tables))
    for name in sorted(tables, key=encode_name):
        table = tables[name]
        out.text(name)
        if isinstance(table, (int, float)):
            out.u8(0).u64(1).f64(_finite(name, table))
            continue
        if len(table) > LIMITS.scalar_table_values:
            raise UsageError(f"The table {name!r} is too long.", "Shorten the run.")
        out.u8(1).u64(len(table))
        for value in table:
            out.f64(_finite(name, value))
    return out.digest()


def _finite(name: str, value: float) -> float:
    number = float(value)
    if number - number != 0:
        raise UsageError(f"The scalar {name!r} is not finite.", "Fix the schedule.")
    return number


@dataclass(frozen=True)
class JobCommitment:
    """The fields of a job that fix its run, and no others (COMMITMENTS 7.1).

    Digests are 32 raw bytes; counts and seeds are unsigned 64-bit integers, the random-number
    seed below 2^63. Raises UsageError for a value that is out of range, UnsupportedVersionError
    for another format version.
    """

    contract: str
    program_digest: bytes
    genesis_root: bytes
    data_root: bytes
    record_count: int
    batch_size: int
    order_seed: int
    rng_seed: int
    steps: int
    checkpoint_interval: int
    scalars_digest: bytes
    stop_on_non_finite: bool = True
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if self.format_version != FORMAT_VERSION:
            raise UnsupportedVersionError(
                f"Job format version {self.format_version} is unknown.",
                "Use a build of Tallystick that knows it.",
            )
        encode_name(self.contract)
        for name in ("program_digest", "genesis_root", "data_root", "scalars_digest"):
            check_hash(getattr(self, name), name.replace("_", " "))
        for name, low, high in (
            ("record_count", 0, LIMITS.records),
            ("batch_size", 1, LIMITS.batch_size),
            ("order_seed", 0, U64_MAX),
            ("rng_seed", 0, RNG_SEED_MAX),
            ("steps", 0, LIMITS.steps),
            ("checkpoint_interval", 1, LIMITS.steps),
        ):
            check_range(name, getattr(self, name), low, high)
        if not isinstance(self.stop_on_non_finite, bool):
            raise UsageError("stop_on_non_finite is neither true nor false.", "Choose one.")

    @property
    def stop_on_slot(self) -> bool:
        """A job of format 1 has no slot that stops it."""
        return False

    @property
    def ends_early(self) -> bool:
        """True if a run of the job may end before its last step (COMMITMENTS 6.2)."""
        return self.stop_on_non_finite

    @cached_property
    def timetable(self) -> Timetable:
        """Every step executes the one program (COMMITMENTS 7.6)."""
        program = JobProgram.alone("step", self.program_digest, 0, self.batch_size)
        data = DataSet("train", self.data_root, self.record_count, self.order_seed)
        return Timetable((program,), (data,), (ScheduleTurn(0, 1),))

    def random_key(self, step: int) -> tuple[int, int]:
        """The program's random key of a step (NUMERICS 8.3)."""
        return self.rng_seed, step

    def under(self, contract: str, digests: Sequence[bytes]) -> JobCommitment:
        """The same under another contract, in which the programs have other `digests`."""
        return replace(self, contract=contract, program_digest=digests[0])

    def digest(self) -> bytes:
        """The job digest, 32 bytes (COMMITMENTS 7.2)."""
        out = Writer(JOB_TAG).u32(self.format_version).text(self.contract)
        out.hash(self.program_digest).hash(self.genesis_root)
        out.hash(self.data_root).u64(self.record_count).u64(self.batch_size)
        out.u64(self.order_seed).u64(self.rng_seed)
        out.u64(self.steps).u64(self.checkpoint_interval)
        out.hash(self.scalars_digest).u8(int(self.stop_on_non_finite))
        return out.digest()


@dataclass(frozen=True)
class JobCommitment2:
    """The fields of a job of format 2 or 3 that fix its run, and no others (COMMITMENTS 7.6, 7.7).

    The format is 2 where that can say the timetable.

    `continues` is the digest of the run that the job continues, 32 zero bytes without one. Raises
    UsageError for a value that is out of range.
    """

    contract: str
    genesis_root: bytes
    timetable: Timetable
    rng_seed: int
    steps: int
    checkpoint_interval: int
    scalars_digest: bytes
    stop_on_non_finite: bool = True
    stop_on_slot: bool = False
    continues: bytes = CONTINUES_NONE

    @property
    def format_version(self) -> int:
        return FORMAT_VERSION_2 if self.timetable.plain else FORMAT_VERSION_3

    def __post_init__(self) -> None:
        encode_name(self.contract)
        for name in ("genesis_root", "scalars_digest", "continues"):
            check_hash(getattr(self, name), name.replace("_", " "))
        check_range("rng_seed", self.rng_seed, 0, RNG_SEED_MAX)
        check_range("steps", self.steps, 0, LIMITS.steps)
        check_range("checkpoint_interval", self.checkpoint_interval, 1, LIMITS.steps)
        for stream in self.timetable.streams:
            if stream.data is not None:
                data = self.timetable.data[stream.data]
                check_range(f"record_count of {data.name}", data.record_count, 1, LIMITS.records)
            if not stream.by_pass:
                last = stream.first + self.timetable.batches(stream, self.steps)
                check_range(f"last batch of {stream.name}", last, 0, LIMITS.steps)
        self.timetable.check_sizes(self.steps)
        for name in ("stop_on_non_finite", "stop_on_slot"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} is neither true nor false.", "Choose one.")

    @property
    def ends_early(self) -> bool:
        """True if a run of the job may end before its last step (COMMITMENTS 6.2, 7.6.7)."""
        return self.stop_on_non_finite or self.stop_on_slot

    def random_key(self, step: int) -> tuple[int, int]:
        """The random key that a step's program reads (COMMITMENTS 7.6.6)."""
        at = self.timetable.at(step)
        return program_seed(self.rng_seed, self.timetable, at.program), at.number

    def under(self, contract: str, digests: Sequence[bytes]) -> JobCommitment2:
        """The same under another contract, in which the programs have other `digests`."""
        pairs = zip(self.timetable.programs, digests, strict=True)
        programs = tuple(replace(program, digest=digest) for program, digest in pairs)
        return replace(
            self, contract=contract, timetable=replace(self.timetable, programs=programs)
        )

    def digest(self) -> bytes:
        """The job digest, 32 bytes (COMMITMENTS 7.6.2, 7.7.2)."""
        two = self.timetable.plain
        out = Writer(JOB2_TAG if two else JOB3_TAG).u32(self.format_version).text(self.contract)
        out.hash(self.genesis_root).u64(len(self.timetable.data))
        for data in self.timetable.data:
            out.text(data.name).hash(data.root).u64(data.record_count).u64(data.order_seed)
            if not two:
                out.u8(ORDERS.index(data.order))
        self._put_programs(out) if two else self._put_streams(out)
        out.u64(len(self.timetable.turns))
        for turn in self.timetable.turns:
            out.u64(turn.program).u64(turn.steps)
        out.u64(self.rng_seed).u64(self.steps).u64(self.checkpoint_interval)
        out.hash(self.scalars_digest)
        out.u8(int(self.stop_on_non_finite)).u8(int(self.stop_on_slot))
        return out.hash(self.continues).digest()

    def _put_programs(self, out: Writer) -> None:
        """The programs of format 2, each with what it reads."""
        out.u64(len(self.timetable.programs))
        for program in self.timetable.programs:
            reads = 0 if program.data is None else program.data + 1
            out.text(program.name).hash(program.digest).u64(reads).u64(program.batch_size)
            out.u64(program.micro_batches).u8(int(program.by_pass)).u64(program.first)

    def _put_streams(self, out: Writer) -> None:
        """The streams of format 3, and the programs that share them."""
        streams = self.timetable.streams
        out.u64(len(streams))
        for stream in streams:
            reads = 0 if stream.data is None else stream.data + 1
            out.text(stream.name).u64(reads).u64(stream.batch_size).u8(int(stream.by_pass))
            out.u64(stream.epoch_records or 0).u64(stream.first)
        out.u64(len(self.timetable.programs))
        for program in self.timetable.programs:
            out.text(program.name).hash(program.digest).u64(streams.index(program.stream))
            out.u64(program.batch_size).u64(program.micro_batches)


Commitment = JobCommitment | JobCommitment2
