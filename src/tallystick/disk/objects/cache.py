"""Where files of object stores lie on this machine: mirrors, which end with their command, and the
working directories of runs that are published.

TALLYSTICK_CACHE names the directory (default: `tallystick` where the system keeps caches), and
TALLYSTICK_CACHE_BYTES the bytes that a mirror may keep at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tallystick.disk.files import locked, make_directory, new_directory, remove_tree
from tallystick.disk.regular import names, present
from tallystick.errors import StorageError, UsageError

_DEFAULT_BYTES = 4 << 30
_LOCK = "lock"


def cache_directory() -> Path:
    """The directory for all this. Raises UsageError where it is no absolute path."""
    named = os.environ.get("TALLYSTICK_CACHE")
    if named:
        path = Path(named)
    else:
        above = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        path = Path(above) / "tallystick"
    if not path.is_absolute():
        raise UsageError(
            f"TALLYSTICK_CACHE is {path}, which is not an absolute path.",
            "Set it to an absolute path.",
        )
    return path


def cache_bytes() -> int:
    """The bytes that a mirror may keep. Raises UsageError."""
    text = os.environ.get("TALLYSTICK_CACHE_BYTES", str(_DEFAULT_BYTES))
    if not text.isdecimal():
        raise UsageError(
            f"TALLYSTICK_CACHE_BYTES is {text!r}, which is not a number.",
            "Set it to a number of bytes.",
        )
    return int(text)


def working_directory(url: str, job_digest: bytes) -> Path:
    """The directory in which the run of a job that is published at `url` is made."""
    name = sha256(url.encode("utf-8") + b"\0" + job_digest).hexdigest()[:32]
    return cache_directory() / "work" / name


@contextmanager
def mirror_directory() -> Iterator[Path]:
    """A new directory for one mirror, removed at the end. Those of killed processes go too.

    Raises StorageError."""
    above = cache_directory() / "mirrors"
    make_directory(above)
    above = above.resolve()
    _remove_left(above)
    directory = new_directory("mirror-", above)
    try:
        with locked(directory / _LOCK, "command"):
            yield directory
    finally:
        remove_tree(directory)


def _remove_left(above: Path) -> None:
    for name in names(above):
        if present(above / name / _LOCK):  # else it is about to be made
            try:
                with locked(above / name / _LOCK, "command"):
                    remove_tree(above / name)
            except StorageError:
                continue  # in use
