"""`train`, put together once for every face: what it is asked for, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import context_on
from tallystick.disk.keys import load_private_key
from tallystick.disk.objects.address import is_url
from tallystick.disk.objects.store import Counts
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.prover.shares import checking_of
from tallystick.run.distributed.going_on import STOP, GoingOn, going_on
from tallystick.run.distributed.launch import (
    Checking,
    Workers,
    as_launched,
    threads_each,
    timeout_of,
    train_by,
)
from tallystick.run.distributed.transport import launched
from tallystick.run.execute.listener import Listener
from tallystick.run.execute.published import published
from tallystick.run.execute.trainer import Options
from tallystick.run.show.summary import RunSummary

# Gets the directory and the counts of a run at a URL, before training begins.
AtStore = Callable[[Path, Counts], None]


@dataclass(frozen=True)
class Training:
    """What `train` is asked for, beside the job, by the names of its keywords; `timeout` is the
    number of seconds after which a silent worker counts as dead.

    Raises UsageError for options that can never go together, before anything is loaded. A key's
    file is read when the run begins.
    """

    out: Path | str  # a path, or the URL of a prefix on an object store
    threads: int | None = None
    device: str = "cpu"
    keep_checkpoints: int | None = None
    key: PrivateKey | Path | None = None
    trace: tuple[int, int] | None = None
    replay: Path | None = None
    compress_logs: bool = False
    overwrite: bool = False
    workers: int = 1
    timeout: float | None = None
    check_workers: float | None = None
    on_conviction: str = STOP
    retries: int = 0
    work: Path | None = None

    def __post_init__(self) -> None:
        self.going_on()
        timeout_of(self.timeout, self.workers)
        self.checking(Path(), Path())  # the share is a fraction, whatever the places
        if self.work is not None and not is_url(str(self.out)):
            raise UsageError("--work can only be used with a run at a URL.", "Leave --work out.")

    def going_on(self) -> GoingOn:
        checked, by_torchrun = self.check_workers is not None, launched() is not None
        return going_on(self.on_conviction, self.retries, self.workers, checked, by_torchrun)

    def checking(self, job: Path, directory: Path) -> Checking | None:
        """How workers check each other, who train the job at `job` in `directory`."""
        if self.check_workers is None:
            return None
        return checking_of(self.check_workers, job, directory, called=str(self.out))

    def follower(self, job: Path) -> Callable[[], int] | None:
        """Where torchrun started this process as a worker other than the first: what it is to do
        for the job at `job`, to its exit code."""
        checking = self.checking(job, Path(self.out))
        answering = None if checking is None else checking.answering
        silence = timeout_of(self.timeout, self.workers)
        return as_launched(job, self.threads, self.device, silence, answering)

    def options(self, job: Job) -> Options:
        """The trainer's own options: the device is found, the key is there."""
        threads = self.threads
        if threads is None and self.workers > 1:
            threads = threads_each(self.workers)
        return Options(
            context_on(self.device, lambda: job.commitment.contract, threads),
            keep=self.keep_checkpoints,
            key=load_private_key(self.key) if isinstance(self.key, Path) else self.key,
            trace=self.trace,
            replay=self.replay,
            compress=self.compress_logs,
            overwrite=self.overwrite,
        )


def train_as(
    asked: Training,
    job: Job,
    listener: Listener,
    say: Callable[[str], None] | None = None,
    at_store: AtStore | None = None,
) -> RunSummary:
    """Train `job` as `asked`, and return what was made, finished or not.

    `listener` gets the progress, and `say` what a person must know of workers who fail or lie (by
    default as a notice). One that has a method `ended` gets the result too. Errors: see
    `tallystick.train`.
    """
    with _told_of_the_end(listener) as ended:
        ended.append(_train(asked, job, listener, say, at_store))
    return ended[0]


@contextmanager
def _told_of_the_end(listener: Listener) -> Iterator[list[RunSummary]]:
    """A listener that has `ended` hears of the summary that the block puts into the list, or of
    None after an error."""
    found: list[RunSummary] = []
    try:
        yield found
    finally:
        told = getattr(listener, "ended", None)
        if told is not None:
            told(found[0] if found else None)


def _train(
    asked: Training,
    job: Job,
    listener: Listener,
    say: Callable[[str], None] | None,
    at_store: AtStore | None,
) -> RunSummary:
    options = asked.options(job)
    with _place(asked, job, listener, at_store) as (directory, told):
        team = Workers(
            asked.workers,
            asked.device,
            timeout_of(asked.timeout, asked.workers),
            asked.checking(job.directory, directory),
        )
        how = replace(asked.going_on(), tell=say or told.notice)
        return train_by(team, job, directory, options, told, how)


@contextmanager
def _place(
    asked: Training, job: Job, listener: Listener, at_store: AtStore | None
) -> Iterator[tuple[Path, Listener]]:
    """The directory to train in, and the listener: those of a run at a URL are published."""
    if not is_url(str(asked.out)):
        yield Path(asked.out), listener
        return
    there = published(str(asked.out), job, listener, asked.work, asked.overwrite)
    with there as (directory, watched, counts):
        if at_store is not None:
            at_store(directory, counts)
        yield directory, watched
