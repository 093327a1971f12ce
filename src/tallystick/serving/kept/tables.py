"""The tables of kept answers: an SQLite database in the keeper's directory, mode 0600.

It is in WAL mode, each commit is flushed before it returns (synchronous=FULL), and what is deleted
is overwritten (secure_delete). One process writes, under the directory's lock; others read beside
it. SQLite's errors become errors of our tree here, and nowhere else.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallystick.disk.files import create_new, make_directory, sync_path
from tallystick.disk.regular import look, os_errors, present
from tallystick.errors import CorruptFileError, StorageError, UnsupportedVersionError, UsageError

DATABASE, LOCK = "answers.db", "lock"
PAGE = 4096
_VERSION = 2
# Clients' words beside receipts (ANSWERS 6.6).
_CANCELLATIONS = (
    "CREATE TABLE IF NOT EXISTS cancellations (answer TEXT PRIMARY KEY, signed BLOB NOT NULL)"
)
_SCHEMA = (
    """CREATE TABLE models (
        digest BLOB PRIMARY KEY, statement BLOB NOT NULL,
        directory TEXT NOT NULL, seen TEXT NOT NULL, adapter TEXT)""",
    "CREATE TABLE programs (digest BLOB PRIMARY KEY, text BLOB NOT NULL)",
    """CREATE TABLE answers (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
        model BLOB NOT NULL, program BLOB NOT NULL, job BLOB NOT NULL, until INTEGER NOT NULL,
        receipt BLOB NOT NULL, request BLOB NOT NULL, spoken BLOB NOT NULL)""",
    "CREATE INDEX answers_of_job ON answers (job)",
    "CREATE INDEX answers_of_model ON answers (model, until)",
    "CREATE INDEX answers_by_end ON answers (until)",
    "CREATE INDEX answers_by_program ON answers (program)",
    _CANCELLATIONS,
    f"PRAGMA user_version = {_VERSION}",
)
# Tables of version 1 knew no adapters, and no client's word beside a receipt.
_FROM_FIRST = (
    "ALTER TABLE models ADD COLUMN adapter TEXT",
    _CANCELLATIONS,
    f"PRAGMA user_version = {_VERSION}",
)
_SETTINGS = (
    "journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "secure_delete = ON",
    "wal_autocheckpoint = 0", "trusted_schema = OFF", "cell_size_check = ON",
)  # fmt: skip
_BUSY_MS = 5000


@contextmanager
def sqlite_errors(directory: Path) -> Iterator[None]:
    """SQLite's errors as ours: StorageError, and CorruptFileError for a damaged database."""
    try:
        yield
    except sqlite3.OperationalError as error:
        full = "full" in str(error)
        raise StorageError(
            f"The answers kept in {directory} could not be "
            + ("written: the disk is full." if full else f"used: {error}."),
            "Nothing that was kept is lost. "
            + ("Free some space." if full else "Check the disk, then start again."),
        ) from error
    except sqlite3.DatabaseError as error:
        raise CorruptFileError(
            f"The database {directory / DATABASE} is damaged: {error}.",
            "Restore the directory from a copy. `tallystick kept DIR --check` prints what is left.",
        ) from error


def create_tables(directory: Path) -> None:
    """Make the directory and an empty database in it, unless they are there, and bring one of
    version 1 to this version. The caller holds the lock. Raises StorageError."""
    path = directory / DATABASE
    if not present(path):
        with os_errors(path):
            create_new(path, b"", 0o600)
        sync_path(directory)
    found = connected(directory)
    try:
        with sqlite_errors(directory):
            if changes := {0: _SCHEMA, 1: _FROM_FIRST}.get(_version(found)):
                found.execute("BEGIN IMMEDIATE")
                for statement in changes:
                    found.execute(statement)
                found.execute("COMMIT")
    finally:
        found.close()


def make_private(directory: Path) -> None:
    """Make the keeper's directory, for its owner only. Raises StorageError, UsageError."""
    new = not present(directory)
    make_directory(directory)
    if new:
        with os_errors(directory):
            os.chmod(directory, 0o700)
        sync_path(directory.absolute().parent)


def connected(directory: Path) -> sqlite3.Connection:
    """A connection that any one thread at a time may use. Raises StorageError, CorruptFileError."""
    with sqlite_errors(directory):
        found = sqlite3.connect(directory / DATABASE, isolation_level=None, check_same_thread=False)
        try:
            found.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            for setting in _SETTINGS:
                found.execute(f"PRAGMA {setting}")
        except BaseException:
            found.close()
            raise
    return found


def reading(directory: Path) -> sqlite3.Connection:
    """A connection that changes nothing, beside a writer or without one. Raises UsageError where
    there is no database, UnsupportedVersionError, StorageError, CorruptFileError."""
    if not present(directory / DATABASE):
        raise UsageError(
            f"{directory} contains no kept answers.",
            "Name the directory that `serve-model --keep` writes.",
        )
    found = connected(directory)
    try:
        with sqlite_errors(directory):
            require_version(found, directory)
            found.execute("PRAGMA query_only = ON")
    except BaseException:
        found.close()
        raise
    return found


def require_version(found: sqlite3.Connection, directory: Path) -> None:
    """Raise UnsupportedVersionError for tables of another version."""
    if (version := _version(found)) != _VERSION:
        raise UnsupportedVersionError(
            f"The answers in {directory} are kept by version {version}; this build knows "
            f"{_VERSION}.",
            "Use the build that has written them."
            if version > _VERSION
            else "Start its `serve-model --keep` once, which brings them to this version.",
        )


def _version(found: sqlite3.Connection) -> int:
    return int(found.execute("PRAGMA user_version").fetchone()[0])


def pages_in_use(found: sqlite3.Connection) -> int:
    """Pages of the database that hold something. Free ones are used before the file grows."""
    whole = found.execute("PRAGMA page_count").fetchone()[0]
    return int(whole) - int(found.execute("PRAGMA freelist_count").fetchone()[0])


def wal_bytes(directory: Path) -> int:
    """The size of the write-ahead log."""
    found = look(directory / f"{DATABASE}-wal", None)
    return 0 if found is None else found.st_size
