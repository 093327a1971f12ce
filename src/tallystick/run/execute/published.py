"""Training a run that is published on an object store as it is made (run/store/publish.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tallystick.devices.environment import exact_environment
from tallystick.disk.files import locked, make_directory
from tallystick.disk.objects.address import parse_address
from tallystick.disk.objects.cache import working_directory
from tallystick.disk.objects.opening import objects_at
from tallystick.disk.objects.store import Counts
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.run.execute.listener import Listener
from tallystick.run.store.directory import RunStore
from tallystick.run.store.joining import join
from tallystick.run.store.publish import Publisher


class WatchedPublishing:
    """Passes each call on, and stops the training where the publisher has met another writer."""

    def __init__(self, other: Listener, check: Callable[[], None]) -> None:
        self._other, self._check = other, check

    def notice(self, text: str) -> None:
        self._other.notice(text)

    def begin(self, job: Job, start: int) -> None:
        self._check()
        self._other.begin(job, start)

    def step(self, step: int, loss: float, seconds: float) -> None:
        self._check()
        self._other.step(step, loss, seconds)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        told = getattr(self._other, "metrics", None)
        if told is not None:
            told(step, values)

    def evaluated(self, step: int, loss: float) -> None:
        self._other.evaluated(step, loss)


@contextmanager
def published(
    url: str, job: Job, listener: Listener, work: Path | None = None, overwrite: bool = False
) -> Iterator[tuple[Path, Listener, Counts]]:
    """The directory in which to train `job` so that the run stands at `url`, the listener to give
    to the trainer, and the counts of requests and bytes.

    The directory is `work`, or one that this machine keeps for this URL and this job. It has what
    was published before. The end of the context puts what is not yet on the store; an error inside
    leaves that for the next time. Raises UsageError for what is at the URL, StoreError,
    StoreConflictError where another trainer writes there, and the errors of `join`.
    """
    if overwrite:
        raise UsageError(
            f"--overwrite works on local directories only, not on {url}.",
            "Choose another prefix, or remove the objects with the store's own tools.",
        )
    objects = objects_at(parse_address(url), made=True)
    directory = working_directory(objects.address.url, job.digest) if work is None else work
    make_directory(directory.parent)
    with locked(directory.with_name(directory.name + ".lock")):
        store = RunStore(directory)
        with exact_environment():
            there, journal = join(objects, store, job)
        publisher = Publisher(objects, there, journal, store, job, listener.notice)
        publisher.start()
        try:
            yield directory, WatchedPublishing(listener, publisher.check), objects.counts
            publisher.finish()
        finally:
            publisher.close()
