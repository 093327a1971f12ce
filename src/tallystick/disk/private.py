"""A directory that belongs to this user alone, for what no other party may write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tallystick.disk.regular import is_directory, os_errors, present
from tallystick.errors import StorageError, UsageError


def private_directory(path: Path) -> None:
    """Make `path`, with mode 0700, or find it there, this user's own and writable for nobody else.

    Raises UsageError for a directory that others own or may write, StorageError.
    """
    with os_errors(path):
        if not present(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_directory(path):
            raise UsageError(f"{path} is a file, not a directory.", "Name a directory.")
        _require_own(path, os.stat(path))


def require_own(path: Path) -> None:
    """Raise UsageError unless the file `path` is this user's own, writable for nobody else, and no
    link. Raises StorageError."""
    with os_errors(path):
        found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(f"{path} is not a regular file.", "Remove it.")
    _require_own(path, found)


def _require_own(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to another user.", "Choose a directory of your own.")
    if found.st_mode & 0o022:
        raise UsageError(
            f"Other users can write to {path}.",
            "Choose another directory, or remove their permission (chmod go-w).",
        )
