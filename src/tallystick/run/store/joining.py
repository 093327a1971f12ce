"""Taking a run up from an object store: what is published there, and what a working directory has.

Both hold a prefix of one run. Where they agree on every loss, log and root that both have, the
longer one is gone on with: the working directory's as it stands, or the published one, whose
journal, newest state and claim are then copied. Where they differ, somebody's file was altered or a
machine is faulty, and nothing is written.
"""

from __future__ import annotations

from pathlib import Path

from tallystick.disk.files import remove_file, write_file
from tallystick.disk.objects.opening import opened_objects
from tallystick.disk.objects.store import Found, Objects
from tallystick.disk.regular import present, read_file
from tallystick.errors import CounterpartyError, MismatchError, StorageError, UsageError
from tallystick.job.job import MANIFEST as JOB_MANIFEST
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.run.store.directory import MANIFEST, RunStore
from tallystick.run.store.journal import JournalContent, journal_limit
from tallystick.run.store.publish import another_job


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
