"""Directories whose files lie elsewhere and come when they are opened: the table of mounts.

The door (`regular`) asks here before it opens, lists or measures. Without a mount every answer is
"nothing of mine", at the cost of one look at an empty table. The table belongs to the process, as
the operating system's table of mounts does: a path means the same to every caller, and the layers
above need not know. It holds no credentials, and changes no byte that a caller reads.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

PLAIN = stat.S_IFREG | 0o644  # the mode of a file that lies elsewhere
FOLDER = stat.S_IFDIR | 0o755


class Seen(NamedTuple):
    """One name that lies elsewhere: its `st_mode`, and its size in bytes (0 unless it is PLAIN).
    A store has plain files alone; a directory of another machine may have links and FIFOs."""

    mode: int
    size: int


class Mount(Protocol):
    """A directory, and the place that it stands for. Names are relative, with `/`."""

    @property
    def directory(self) -> Path: ...

    @property
    def url(self) -> str: ...

    def held(self, name: str, what: str, limit: int | None) -> AbstractContextManager[None]:
        """Within the context the file is there, if there is one; more than `limit` bytes are
        refused. Raises StorageError, CorruptFileError."""

    def seen(self, name: str) -> Seen | None:
        """What lies elsewhere under this name; None for nothing, and for a directory."""

    def children(self, name: str) -> dict[str, Seen]:
        """The names in a directory that lie elsewhere."""

    def beginning(self, name: str, count: int) -> tuple[bytes, int] | None:
        """The first `count` bytes and the size of a file that lies elsewhere and is not here yet;
        None for any other."""


# Set while something is mounted: JSON, a list of [directory, URL]. A process that we start finds
# there what its paths mean.
INHERITED = "TALLYSTICK_MOUNTS"
_lock = threading.RLock()
_inheriting = False
_mounts: dict[str, Mount] = {}
_names: dict[str, str] = {}  # also of mounts that are gone: an error may name them still


@contextmanager
def mounted(mount: Mount) -> Iterator[None]:
    """Within the context, paths below `mount.directory` are those of the mount."""
    place = str(mount.directory)
    with _lock:
        _mounts[place] = mount
        _names[place] = mount.url
    try:
        yield
    finally:
        with _lock:
            del _mounts[place]


def mount_of(path: Path) -> tuple[Mount, str] | None:
    """The mount that `path` lies in, and its name there ("" for the directory itself)."""
    if not _mounts and not _inherit():
        return None
    text = str(path)
    for place, mount in list(_mounts.items()):
        if text == place:
            return mount, ""
        if text.startswith(place + "/"):
            return mount, text[len(place) + 1 :]
    return None


def _inherit() -> bool:
    """Mount what the process that started this one had mounted; True if there is something."""
    global _inheriting
    if INHERITED not in os.environ:
        return False
    with _lock:
        if _mounts or _inheriting:  # a mirror of a directory asks the door while it is made
            return bool(_mounts)
        _inheriting = True
        try:
            # Object stores stand above the door. They are loaded only where one is mounted.
            objects = import_module("tallystick.disk.objects.opening")
            for mount in objects.inherited(os.environ[INHERITED]):
                _mounts[str(mount.directory)] = mount
                _names[str(mount.directory)] = mount.url
        finally:
            _inheriting = False
    return bool(_mounts)


def url_of(path: Path) -> str | None:
    """The URL that `path` stands for; None for a path of this machine."""
    found = mount_of(path)
    return None if found is None else f"{found[0].url}/{found[1]}".rstrip("/")


def named(text: str) -> str:
    """`text` with the URLs in the place of mounted directories: what a person should read."""
    for place, url in list(_names.items()):
        text = text.replace(place, url)
    return text


# -- what the door asks ----------------------------------------------------------------------------
def held(path: Path, what: str, limit: int | None = None) -> AbstractContextManager[None]:
    """Within the context the file at `path` is there, if the mount has it."""
    found = mount_of(path)
    return nullcontext() if found is None else found[0].held(found[1], what, limit)


def elsewhere(path: Path) -> Seen | None:
    """What the mount has at `path`; None for nothing, and for a directory."""
    found = mount_of(path)
    return None if found is None else found[0].seen(found[1])


def obstacle(path: Path) -> tuple[Path, int] | None:
    """The first component of `path`, itself included, that lies elsewhere and is neither a plain
    file nor a directory, with its `st_mode`; None where there is none."""
    found = mount_of(path)
    if found is None:
        return None
    mount, name = found
    parts = name.split("/")
    for count in range(1, len(parts) + 1):
        at = "/".join(parts[:count])
        seen = mount.seen(at)
        if seen is not None and not stat.S_ISREG(seen.mode):
            return mount.directory / at, seen.mode
    return None


def children(directory: Path) -> dict[str, Seen]:
    """The mount's names in `directory`."""
    found = mount_of(directory)
    return {} if found is None else found[0].children(found[1])


def beginning(path: Path, count: int) -> tuple[bytes, int] | None:
    """The first bytes and the size of a file that is not here yet; None for any other."""
    found = mount_of(path)
    return None if found is None else found[0].beginning(found[1], count)
