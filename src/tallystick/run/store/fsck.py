"""A check of every byte of a run, or of a job, against its digests, which executes no step; and
files in a run's directory that are no part of an honest run.

Any person who may write to the directory may put them there. No command believes such a file
(PROTOCOL 2.8.2).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from tallystick.commit.signing import PublicKey, verify_run
from tallystick.commit.state import (
    CHAIN_START,
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    extend_log_chain,
    extend_loss_chain,
)
from tallystick.devices.environment import exact_environment
from tallystick.disk.files import TEMPORARY_SUFFIX
from tallystick.disk.regular import names, present, size_of
from tallystick.errors import StoreError, TallystickError
from tallystick.job.job import MANIFEST, STATE0, Job
from tallystick.job.job_file import load_job
from tallystick.limits import LIMITS
from tallystick.program.state import State
from tallystick.run.logs.reader import LogShape, keeps_log
from tallystick.run.store.claim import check_own_key, claim_problem
from tallystick.run.store.directory import SCRATCH_PREFIX, RunStore
from tallystick.run.store.journal import JournalContent, loss_value

RESTORE = "Restore it from an intact copy."
RETRAIN = "Run the same `tallystick train` command again."
_Name = TypeVar("_Name", str, int)


@dataclass(frozen=True)
class Problem:
    """One fault: the file, the fault itself, and the next action."""

    path: str
    message: str
    next_action: str


class Checker:
    """Collects the problems of the directory `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: dict[Problem, None] = {}  # in the order found
        self.checked: list[str] = []

    def add(self, path: Path, message: str, action: str = RESTORE) -> None:
        name = str(path.relative_to(self.root)) if path != self.root else "."
        self.problems[Problem(name, message, action)] = None

    def guard(self, path: Path, check: Callable[[], object]) -> bool:
        """Run one check, and make its error a problem of `path`; True if there was none."""
        self.checked.append(str(path.relative_to(self.root)))
        try:
            check()
        except StoreError:
            raise  # a store that is out of reach is no fault of the run
        except TallystickError as error:
            self.add(path, error.message, error.next_action)
            return False
        return True

    def foreign(self, directory: Path, known: set[str]) -> None:
        """Add the files that do not belong in `directory`: the first by name, and the number of
        the others."""
        found = set(self.listed(directory, lambda: names(directory, self.root))) - known
        strangers = heapq.nsmallest(LIMITS.strays_named, found)
        for path in (directory / name for name in strangers):
            if path.name.endswith(TEMPORARY_SUFFIX):
                self.add(path, "It was left by an interrupted write.", RETRAIN)
            elif path.name.startswith(SCRATCH_PREFIX):
                why = "It holds states of a dispute under way, or of one that was killed."
                self.add(path, why, "Remove it when the dispute is over.")
            else:
                self.add(path, "It does not belong here.", "Remove it.")
        if more := len(found) - len(strangers):
            self.add(directory, f"{more} more files do not belong here.", "Remove them.")

    def listed(self, directory: Path, lister: Callable[[], list[_Name]]) -> list[_Name]:
        """The names that `lister` finds in `directory`. A link, or a path that is no directory,
        becomes a problem and gives no names."""
        try:
            return lister()
        except TallystickError as error:
            self.add(directory, error.message, error.next_action)
            return []


def strangers(store: RunStore, journal: JournalContent | None) -> tuple[Problem, ...]:
    """The files in the run's directory that are no part of an honest run; it reads none of them."""
    checker = Checker(store.directory)
    check_strangers(checker, store, journal)
    return tuple(checker.problems)


def check_strangers(checker: Checker, store: RunStore, journal: JournalContent | None) -> None:
    """Add the problems that `strangers` lists to those of `checker`."""
    if present(store.override_path):
        why = "It declares a cheat, which an honest run does not; nobody signs it."
        checker.add(store.override_path, why, "Remove it, unless you play the cheat on purpose.")
    _check_layout(checker, store, journal)
    if journal is not None and journal.finished:
        paused = set(journal.pauses) - dict(journal.checkpoints).keys()
        for step in checker.listed(store.checkpoints_path, store.stored_steps):
            if step in paused:
                why = "It is the state of a pause: the run is finished, and nobody signs that."
                checker.add(store.checkpoint_path(step), why, "Remove it.")


def _check_layout(checker: Checker, store: RunStore, journal: JournalContent | None) -> None:
    checker.foreign(store.directory, store.own_names)
    stored = logged = traced = None  # the steps that may have a file; without a journal, any
    if journal is not None:
        stored, traced = set(journal.roots), range(len(journal.losses))
        # An unfinished run may hold the log of a step that the journal does not have yet.
        logged = range(len(journal.logs) + (not journal.finished))
    for directory, lister, path_of, steps in (
        (store.checkpoints_path, store.stored_steps, store.checkpoint_path, stored),
        (store.nodes_path, store.traced_steps, store.trace_path, traced),
        (store.logs_path, store.logged_steps, store.log_path, logged),
    ):
        there = checker.listed(directory, lister)
        known = {path_of(step).name for step in there if steps is None or step in steps}
        checker.foreign(directory, known)
    if present(store.lock_path):
        path = store.lock_path
        found = checker.listed(path, lambda: [size_of(path, "lock file", store.directory)])
        if any(found):
            checker.add(path, "The lock file is not empty.", "Empty it.")


@dataclass(frozen=True)
class FsckReport:
    """All problems in the order in which they were found, and the files that were checked."""

    path: Path
    problems: tuple[Problem, ...]
    checked: tuple[str, ...]
    finished: bool

    @property
    def clean(self) -> bool:
        return not self.problems


@exact_environment()
def fsck(directory: Path, trust: Sequence[PublicKey] | None = None) -> FsckReport:
    """Check the run, or the job, at `directory`. Raises UsageError if it is neither."""
    directory = Path(directory)
    checker = Checker(directory)
    store = RunStore(directory)
    if not store.exists and present(directory / MANIFEST):
        _check_job(checker, directory)
        return FsckReport(directory, tuple(checker.problems), tuple(checker.checked), True)
    if not present(store.journal_path):
        store.require()
    job = None
    if MANIFEST in checker.listed(store.job_path, lambda: names(store.job_path, directory)):
        job = _check_job(checker, store.job_path)
    else:
        checker.add(store.job_path / MANIFEST, "The run's copy of the job is missing.")
    checker.guard(store.manifest_path, store.manifest)
    if job is not None:
        checker.guard(store.manifest_path, store.job)
    journal = _check_journal(checker, store, job)
    if journal is not None and job is not None:
        _check_states(checker, store, job, journal)
        _check_traces(checker, store, job)
        _check_logs(checker, store, job, journal)
        _check_commitment(checker, store, job, journal, trust)
    _check_own_files(checker, store)
    check_strangers(checker, store, journal)
    finished = journal is not None and journal.finished
    return FsckReport(directory, tuple(checker.problems), tuple(checker.checked), finished)


def _check_job(checker: Checker, directory: Path) -> Job | None:
    found: list[Job] = []
    if not checker.guard(directory / MANIFEST, lambda: found.append(load_job(directory))):
        return None
    job = found[0]
    names = {Path(name).name for name in job.files() if "/" not in name}
    checker.foreign(directory, names | {"data"})
    data = {Path(name).name for name in job.files() if "/" in name}
    checker.foreign(directory / "data", data)
    checker.checked += [str((directory / n).relative_to(checker.root)) for n in job.files()[:-1]]
    checks: list[tuple[str, Callable[[], object]]] = [
        (job.program_file(0), lambda: job.texts),
        (STATE0, job.genesis),
        (job.data_file(0) if job.schemas else "data", job.verify_data),
    ]
    sound = True
    for name, check in checks:
        sound = checker.guard(directory / name, check) and sound
    sound = checker.guard(directory, job.verify) and sound
    return job if sound or _usable(job) else None


def _usable(job: Job) -> bool:
    try:
        return bool(job.program.next_state)
    except StoreError:
        raise
    except TallystickError:
        return False


def _check_journal(checker: Checker, store: RunStore, job: Job | None) -> JournalContent | None:
    found: list[JournalContent] = []
    if not checker.guard(store.journal_path, lambda: found.append(store.journal(job))):
        return None
    journal = found[0]
    if journal.torn_bytes:
        checker.add(
            store.journal_path,
            f"Its last {journal.torn_bytes} bytes are damaged ({journal.torn_why}).",
            RETRAIN if not store.signed else RESTORE,
        )
    if job is not None and journal.job_digest != job.digest:
        checker.add(store.journal_path, "It is the journal of another job.")
    return journal


def _check_states(checker: Checker, store: RunStore, job: Job, journal: JournalContent) -> None:
    roots = journal.roots
    stored = checker.listed(store.checkpoints_path, store.stored_steps)
    for step in stored:
        path = store.checkpoint_path(step)
        if step not in roots:
            checker.add(path, f"The journal knows no root for step {step}.", "Remove it.")
        else:
            _check_state(checker, store, job, journal, step)
    if journal.finished and journal.last_step and journal.last_step not in stored:
        checker.add(
            store.checkpoint_path(journal.last_step),
            "The final state is missing.",
            "Restore it, or train again into a new directory.",
        )


def _check_state(
    checker: Checker, store: RunStore, job: Job, journal: JournalContent, step: int
) -> None:
    path = store.checkpoint_path(step)
    states: list[State] = []

    def load() -> None:
        states.append(store.load_state(job, step, journal.roots[step], copy=False))

    if not checker.guard(path, load):
        return
    chain = CHAIN_START
    for index, bits in enumerate(journal.losses[:step]):
        chain = extend_loss_chain(chain, index, loss_value(bits))
    if states[0].loss_chain != chain:
        checker.add(
            store.journal_path,
            f"The losses up to step {step} are not those in the chain of that checkpoint "
            f"(slot {LOSS_CHAIN_SLOT}).",
        )
    logs = CHAIN_START
    for index, digest in enumerate(journal.logs[:step]):
        logs = extend_log_chain(logs, index, digest)
    if states[0].log_chain != logs:
        checker.add(
            store.journal_path,
            f"The logs up to step {step} are not those in the chain of that checkpoint "
            f"(slot {LOG_CHAIN_SLOT}).",
        )


def _check_traces(checker: Checker, store: RunStore, job: Job) -> None:
    for step in checker.listed(store.nodes_path, store.traced_steps):
        path = store.trace_path(step)
        checker.guard(path, lambda step=step: store.load_trace(job, step))  # type: ignore[misc]


def _check_logs(checker: Checker, store: RunStore, job: Job, journal: JournalContent) -> None:
    """Check every step's log against its digest in the journal, which the log chain covers."""
    if not keeps_log(job):
        return
    shape = LogShape(job)
    for step, digest in enumerate(journal.logs):
        path = store.log_path(step)
        checker.guard(path, partial(shape.check, store, step, digest))
    for step in checker.listed(store.logs_path, store.logged_steps):
        if step >= len(journal.logs):
            why = f"The journal has no step {step}: it was being written when the run stopped."
            checker.add(store.log_path(step), why, RETRAIN)


def _check_commitment(
    checker: Checker,
    store: RunStore,
    job: Job,
    journal: JournalContent,
    trust: Sequence[PublicKey] | None,
) -> None:
    path = store.commitment_path
    if not store.signed:
        if journal.finished:
            checker.add(path, "The run is finished but not signed.", RETRAIN)
        return

    def check() -> None:
        envelope = store.envelope()
        assert envelope is not None
        commitment, _ = verify_run(envelope, trust)
        problem = claim_problem(commitment, journal, job)
        if problem:
            checker.add(path, f"It does not fit the run: {problem}.", "Refuse the run.")

    checker.guard(path, check)


def _check_own_files(checker: Checker, store: RunStore) -> None:
    """Check the key that the trainer made for a run without a key."""
    if present(store.signer_path):
        checker.guard(store.signer_path, lambda: check_own_key(store.signer_path, _signer(store)))


def _signer(store: RunStore) -> PublicKey | None:
    """The signer's public key; None where the run is not signed, or where a fault that is reported
    elsewhere hides the key."""
    try:
        envelope = store.envelope()
        return None if envelope is None else verify_run(envelope)[0].signer
    except StoreError:
        raise
    except TallystickError:
        return None
