"""A directory as an object store (`file:///`): every file of it comes and goes through the door.

Objects are the regular files below the directory. No link is followed there, to read or to write,
and nothing is opened whose kind is not known: another party may write into such a directory as into
a bucket. A link, a FIFO, a socket or a device under an object's name is listed as what it is, so
that a reader can name it, and is never read or replaced. The directory itself may be a link.

An object is put under a name of its own beside the place, and then gets its name: a link to a new
name fails where one is there already, and a rename replaces one version by another. There is no
lock, so two trainers can meet between the look at a version and the rename.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallystick.disk.files import (
    TEMPORARY_SUFFIX,
    clone_or_copy,
    make_directory,
    move,
    remove,
    remove_file,
    sync_path,
    write_file,
)
from tallystick.disk.objects.address import Address
from tallystick.disk.objects.store import NEW, Found, Objects
from tallystick.disk.regular import (
    check_directory,
    is_directory,
    look,
    open_regular,
    os_errors,
    present,
    refuse_kind,
    statuses,
)
from tallystick.errors import StorageError, StoreError

# A put that is under way, or whose process was killed.
_STAGED = re.compile(r"\.[0-9a-f]{16}" + re.escape(TEMPORARY_SUFFIX))


class Directory(Objects):
    """The files below a directory. Every method raises StoreError, and CorruptFileError where a
    link, a FIFO or the like stands for a file or for a directory on the way to it."""

    def __init__(self, address: Address, made: bool = False) -> None:
        """`made`: the directory is made if need be."""
        self._begin(address)
        self._root = Path("/" + address.prefix)
        with self._errors("open", ""):
            if made:
                make_directory(self._root)
            if not is_directory(self._root):
                raise StorageError("There is no such directory.")

    def _list(self) -> dict[str, Found]:
        found: dict[str, Found] = {}
        coming = [self._root]
        while coming:
            self._count("list")
            directory = coming.pop()
            for name, seen in statuses(directory, self._root):
                path = directory / name
                if stat.S_ISDIR(seen.st_mode):
                    coming.append(path)
                elif not (stat.S_ISREG(seen.st_mode) and _STAGED.search(name)):
                    found[path.relative_to(self._root).as_posix()] = _found(seen)
                self._require_few(found)
        return found

    def _head(self, name: str) -> Found | None:
        seen = look(self._root / name, self._root)
        if seen is None or stat.S_ISDIR(seen.st_mode):
            return None
        return self._require_object(name, _found(seen))

    def _require_object(self, name: str, found: Found) -> Found:
        if not found.is_object:
            refuse_kind(self._root / name, "object", found.mode)
        return found

    def _get(self, name: str, start: int, stop: int, expected: Found) -> memoryview:
        path = self._root / name
        descriptor = open_regular(path, "object", self._root)
        try:
            now = _found(os.fstat(descriptor))
            if expected.tag and now.tag != expected.tag:
                raise self.changed(name)
            self._require_size(name, now.size, expected)
            data = bytearray(stop - start)
            with os_errors(path):
                count = os.preadv(descriptor, [data], start) if data else 0
            return memoryview(data)[:count]
        finally:
            os.close(descriptor)

    def _put(self, name: str, data: bytes | Path, condition: str) -> str:
        path = self._root / name
        make_directory(path.parent, self._root)
        staged = path.with_name(f"{path.name}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
        try:
            if isinstance(data, Path):
                _copied(data, staged)
            else:
                write_file(staged, [data])
            tag = _tag(os.lstat(staged))
            before = self._head(name)
            if condition == NEW:
                self._name(staged, path)
            elif condition and (before is None or before.tag != condition):
                raise self.conflict(name)
            else:
                move(staged, path)
        finally:
            remove(staged)
        sync_path(path.parent)
        return tag

    def _name(self, staged: Path, path: Path) -> None:
        """Give the file its name, which must be new."""
        with os_errors(path):
            try:
                os.link(staged, path, follow_symlinks=False)
            except FileExistsError:
                raise self.conflict(path.relative_to(self._root).as_posix()) from None

    def _remove(self, name: str) -> None:
        path = self._root / name
        check_directory(path.parent, self._root)
        remove_file(path)

    @contextmanager
    def _errors(self, verb: str, name: str) -> Iterator[None]:
        place = self.address.key(name) if name else self.address.url
        try:
            yield
        except StoreError:
            raise
        except StorageError as error:
            raise StoreError(
                f"The store failed to {verb} {place}: {error.message}",
                error.next_action or "Check the address.",
            ) from None


def _copied(data: Path, staged: Path) -> None:
    """A copy of a file of ours at `staged`. Raises FileNotFoundError where it went."""
    try:
        clone_or_copy(data, staged)
    except StorageError:
        if not present(data):
            raise FileNotFoundError(str(data)) from None
        raise


def _found(seen: os.stat_result) -> Found:
    size = seen.st_size if stat.S_ISREG(seen.st_mode) else 0
    return Found(size, _tag(seen), seen.st_mode)


def _tag(seen: os.stat_result) -> str:
    return f"{seen.st_ino:x}-{seen.st_mtime_ns:x}-{seen.st_size:x}"
