"""Training a run that is published on an object store as it is made (run/store/publish.py).

It is taken up from there where it had begun: what is published and what a working directory has
are both a prefix of one run.
Where they agree on every loss, log and root that both have, the longer one is gone on with: the
working directory's as it stands, or the published one, whose journal, newest state and claim are
then copied. Where they differ, somebody's file was altered or a machine is faulty, and nothing is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tallystick.devices.environment import exact_environment
from tallystick.disk.files import locked, make_directory, remove_file, write_file
from tallystick.disk.objects.address import parse_address
from tallystick.disk.objects.opening import objects_at, opened_objects, working_directory
from tallystick.disk.objects.store import Counts, Found, Objects
from tallystick.disk.regular import present, read_file
from tallystick.errors import CounterpartyError, MismatchError, StorageError, UsageError
from tallystick.job.job import MANIFEST as JOB_MANIFEST
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.run.execute.listener import Listener
from tallystick.run.store.directory import MANIFEST, RunStore
from tallystick.run.store.journal import JournalContent, journal_limit
from tallystick.run.store.publish import Publisher, another_job


def join(
    objects: Objects, store: RunStore, job: Job
) -> tuple[dict[str, Found], JournalContent | None]:
    """Make `store` a directory of `job`'s run that has at least what `objects` has; the objects,
    and the journal among them.

    Raises UsageError where a run of another job or other files are there, StoreConflictError where
    another job is, MismatchError where both differ, CounterpartyError for altered objects,
    StoreError.
    """
    there = objects.listing()
    if MANIFEST not in there:
        others = [name for name in there if not name.startswith("job/")]
        if others:
            raise UsageError(
                f"{objects.address.url} contains other objects ({min(others)}).",
                "Choose a new or empty prefix.",
            )
        store.create(job)
        manifest = store.job_path / JOB_MANIFEST
        found = there.get(name := f"job/{JOB_MANIFEST}")
        if found is not None:
            own = read_file(manifest, LIMITS.journal_bytes, "job manifest", store.directory)
            if found.size != len(own) or objects.read(name, 0, found.size, found) != own:
                raise another_job(objects)
        return there, None
    theirs = None
    with opened_objects(objects) as directory:
        published = RunStore(directory)
        if published.job_digest() != job.digest:
            raise UsageError(
                f"{objects.address.url} contains a run of another job.", "Choose another prefix."
            )
        store.create(job)
        if present(published.journal_path):
            theirs = published.journal(job)
            mine = store.journal(job) if present(store.journal_path) else None
            if mine is not None:
                _require_agreement(objects.address.url, store.directory, mine, theirs)
            if mine is None or _is_ahead(theirs, mine):
                _take_up(published, store, job, theirs)
    return there, theirs


def _is_ahead(theirs: JournalContent, mine: JournalContent) -> bool:
    key = [(len(j.losses), len(j.checkpoints), j.finished) for j in (theirs, mine)]
    return key[0] > key[1]


def _require_agreement(
    url: str, directory: Path, mine: JournalContent, theirs: JournalContent
) -> None:
    def differ(what: str) -> MismatchError:
        return MismatchError(
            f"The run at {url} and the run in {directory} have different {what}.",
            "Run `tallystick fsck` on both, and publish an intact one at another URL.",
        )

    if mine.job_digest != theirs.job_digest:
        raise differ("jobs")
    for what, a, b in (("losses", mine.losses, theirs.losses), ("logs", mine.logs, theirs.logs)):
        if any(x != y for x, y in zip(a, b, strict=False)):
            raise differ(what)
    ours = dict(mine.checkpoints)
    if any(root != ours.get(step, root) for step, root in theirs.checkpoints):
        raise differ("roots")


def _take_up(published: RunStore, store: RunStore, job: Job, journal: JournalContent) -> None:
    """Copy what is needed to go on: the journal before the state, the claim last."""
    remove_file(store.commitment_path)
    for source, target in (
        (published.journal_path, store.journal_path),
        (published.metrics_path, store.metrics_path),
    ):
        if present(source):
            data = read_file(source, journal_limit(job), "file", published.directory)
            write_file(target, [data])
    for step in reversed(published.stored_steps()):
        if step not in journal.roots or step in store.stored_steps():
            continue
        try:
            state = published.load_state(job, step, journal.roots[step], copy=False)
        except CounterpartyError:
            continue  # `fsck` names it; an older one, or the beginning, serves
        store.store_state(step, state)
        break
    if journal.finished and published.signed:
        write_file(store.commitment_path, [published.commitment_bytes()])
    elif published.signed:
        raise StorageError(
            f"{published.directory} contains a claim, but its journal has no end.",
            "Run `tallystick fsck` on it.",
        )


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
