"""The job digest: every field that fixes the computation, in one layout (COMMITMENTS 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.commit.encoding import U64_MAX, Writer, check_hash, encode_name, tag
from tallystick.errors import UnsupportedVersionError, UsageError
from tallystick.limits import LIMITS

JOB_TAG = tag("job/1")
SCALARS_TAG = tag("scalars/1")
FORMAT_VERSION = 1
# The program reads the random seed as i64 (NUMERICS 8.3), although its layout is wider.
RNG_SEED_MAX = (1 << 63) - 1

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
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise UsageError(
                    f"The job's {name} is {value!r}.", f"Choose an integer from {low} to {high}."
                )
        if not isinstance(self.stop_on_non_finite, bool):
            raise UsageError("stop_on_non_finite is neither true nor false.", "Choose one.")

    def digest(self) -> bytes:
        """The job digest, 32 bytes (COMMITMENTS 7.2)."""
        out = Writer(JOB_TAG).u32(self.format_version).text(self.contract)
        out.hash(self.program_digest).hash(self.genesis_root)
        out.hash(self.data_root).u64(self.record_count).u64(self.batch_size)
        out.u64(self.order_seed).u64(self.rng_seed)
        out.u64(self.steps).u64(self.checkpoint_interval)
        out.hash(self.scalars_digest).u8(int(self.stop_on_non_finite))
        return out.digest()
