"""Two things compared, and where they first differ: `diff`."""

from __future__ import annotations

from pathlib import Path

from tallystick.api import given
from tallystick.api.given import PathLike
from tallystick.comparing.found import Comparison
from tallystick.comparing.jobs import compare_jobs
from tallystick.disk.regular import is_directory, present
from tallystick.errors import UsageError
from tallystick.job.job import MANIFEST, Job
from tallystick.job.job_file import load_job
from tallystick.run.store.directory import RunStore

JOB, RUN = "job", "run"


def kind_of(place: Path) -> str:
    """What a directory holds, by the manifest in it. Raises UsageError for something else."""
    if RunStore(place).exists:
        return RUN
    if is_directory(place) and present(place / MANIFEST):
        return JOB
    raise UsageError(
        f"{place} is neither a job nor a run.",
        "Name the directory of a job (`tallystick job new`) or of a run (`tallystick train`).",
    )


def diff(a: Job | PathLike, b: Job | PathLike) -> Comparison:
    """Compare two jobs, and say in words which fields differ.

    `a` and `b` are jobs, or directories of jobs. The directory of a run stands for its job where
    the other one is a job. `fields` of the result are the sentences that the job digests cover,
    `uncommitted` those that no digest covers. Raises UsageError for a directory of another kind,
    CounterpartyError for damaged files, StorageError.
    """
    return compare_jobs(_job(a), _job(b))


def _job(one: Job | PathLike) -> Job:
    if isinstance(one, Job):
        return one
    place = given.path(one)
    return RunStore(place).job() if kind_of(place) == RUN else load_job(place)
