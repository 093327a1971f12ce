"""Opening a run, a job or a data set by its path or by its URL; and where files of object stores
lie on this machine: mirrors, which end with their command, and the working directories of runs
that are published.

TALLYSTICK_CACHE names the directory (default: `tallystick` where the system keeps caches), and
TALLYSTICK_CACHE_BYTES the bytes that a mirror may keep at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from tallystick.disk.files import locked, make_directory, new_directory, remove_tree
from tallystick.disk.mounts import INHERITED, mounted, named
from tallystick.disk.objects.address import Address, is_url, parse_address, refuse_flat
from tallystick.disk.objects.directory import Directory
from tallystick.disk.objects.mirror import FIRST, Mirror
from tallystick.disk.objects.store import Objects
from tallystick.disk.regular import names, present
from tallystick.errors import StorageError, TallystickError, UsageError

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


def objects_at(address: Address, made: bool = False) -> Objects:
    """The objects under an address, whose directory (`file:///`) is `made` if need be.

    Raises CannotCheckError without the package obstore, which a directory does not need;
    StoreError.
    """
    return Directory(address, made) if address.scheme == "file" else Objects(address)


@contextmanager
def opened(place: str | Path) -> Iterator[Path]:
    """The directory to give to any function that reads a run, a job or a data set.

    A path is that directory itself. A URL (`s3://`, `gs://`, `az://`, `file:///`) becomes a
    directory whose files come from the store as they are opened, here and in processes that are
    started within the context; another machine opens the URL for itself (`mounts.url_of`). It goes
    at the end of the context. Errors name the URL.

    Raises UsageError for a malformed URL, CannotCheckError without the package obstore, StoreError.
    """
    if not is_url(str(place)):
        refuse_flat(str(place))
        yield Path(place)
        return
    with opened_objects(objects_at(parse_address(str(place)))) as directory, _announced(directory):
        yield directory


@contextmanager
def _announced(directory: Path) -> Iterator[None]:
    """Within the context, processes that are started here know what the directory stands for."""
    before = os.environ.get(INHERITED)
    told = [*json.loads(before or "[]"), [str(directory), named(str(directory))]]
    os.environ[INHERITED] = json.dumps(told)
    try:
        yield
    finally:
        if before is None:
            del os.environ[INHERITED]
        else:
            os.environ[INHERITED] = before


def inherited(text: str) -> list[Mirror]:
    """The mirrors that the process which started this one has announced: of the same directories,
    whose files both may fetch and both use. Raises StoreError."""
    found = []
    for directory, url in json.loads(text):
        coming = new_directory("coming-", Path(directory).parent)
        found.append(Mirror(objects_at(parse_address(url)), Path(directory), coming, cache_bytes()))
    return found


@contextmanager
def opened_objects(objects: Objects) -> Iterator[Path]:
    """As `opened`, for a store that is open already. Raises StoreError."""
    with mirror_directory() as own:
        make_directory(own / "files")
        make_directory(own / "coming")
        make_directory(own / FIRST)
        mirror = Mirror(objects, own / "files", own / "coming", cache_bytes())
        try:
            with mounted(mirror):
                yield mirror.directory
        except TallystickError as error:
            error.message = named(error.message)
            error.args = (error.message,)
            raise
        finally:
            mirror.close()
