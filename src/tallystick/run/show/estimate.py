"""The size of files and durations in words, and the disk that a run will need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.checkpoint import checkpoint_count
from tallystick.disk.files import free_bytes
from tallystick.errors import StorageError
from tallystick.job.job import Job
from tallystick.run.store.journal import journal_bytes

_SLACK_BYTES = 16 << 20


def human_bytes(n: float) -> str:
    """`n` bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def human_seconds(s: float) -> str:
    """A duration in the units that people use."""
    if s < 1:
        return f"{1000 * s:.3g} ms"
    if s < 60:
        return f"{s:.0f} s" if s >= 10 else f"{s:.1f} s"
    if s < 3600:
        return f"{int(s) // 60} min {int(s) % 60:02d} s"
    return f"{int(s) // 3600} h {int(s) % 3600 // 60:02d} min"


@dataclass(frozen=True)
class DiskEstimate:
    """The bytes on the disk that a run takes at most: the copy of the job, the journal, the kept
    states and one state under way. `logs` is an estimate, since the size of rounding logs depends
    on the run."""

    job: int
    journal: int
    state: int
    keep: int
    logs: int = 0

    @property
    def total(self) -> int:
        return self.job + self.journal + (max(1, self.keep) + 1) * self.state + self.logs

    def sentence(self) -> str:
        logs = f", rounding logs {human_bytes(self.logs)}" if self.logs else ""
        return (
            f"disk: {'about' if logs else 'at most'} {human_bytes(self.total)} "
            f"({max(1, self.keep)} kept checkpoints of {human_bytes(self.state)}, "
            f"job {human_bytes(self.job)}, journal {human_bytes(self.journal)}{logs})"
        )


def estimate_disk(job: Job, state_bytes: int, keep: int, log_bytes: int = 0) -> DiskEstimate:
    """The disk that a run of `job` needs if it keeps `keep` stored states and has logs of
    `log_bytes` bytes."""
    journal = journal_bytes(job.steps, checkpoint_count(job.steps, job.interval), log_bytes > 0)
    return DiskEstimate(job.disk_bytes, journal, state_bytes, keep, log_bytes)


def check_disk(directory: Path, need: int, sentence: str) -> None:
    """Raise StorageError when the disk of `directory` has no room for `need` bytes."""
    free = free_bytes(directory)
    if free < need + _SLACK_BYTES:
        raise StorageError(
            f"The disk of {directory} has {human_bytes(free)} free, but the run needs "
            f"{human_bytes(need)} and {human_bytes(_SLACK_BYTES)} to spare ({sentence}).",
            "Free some space, choose another directory with --out, or lower --keep-checkpoints.",
        )
