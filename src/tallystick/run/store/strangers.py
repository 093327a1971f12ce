"""Files in a run's directory that are no part of an honest run; fsck and audit name them.

Any person who may write to the directory may put them there. No command believes such a file
(PROTOCOL 2.8.2).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tallystick.disk.files import TEMPORARY_SUFFIX
from tallystick.disk.regular import names, present, size_of
from tallystick.errors import StoreError, TallystickError
from tallystick.limits import LIMITS
from tallystick.run.store.directory import SCRATCH_PREFIX, RunStore
from tallystick.run.store.journal import JournalContent

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
