"""Durable writes and the run lock.

Every write goes through the three functions of `OS`, so that a test can make the n-th one fail
or kill the process. A file that replaces another is written beside it, flushed, renamed, and
its directory flushed: at any moment a reader finds the old or the new one, whole. The file beside
it is always a new one: what had its name is removed, and never written through.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tallystick.disk.direct import write_chunks
from tallystick.disk.regular import (
    check_directory,
    kind_of,
    mode_of,
    names,
    open_file,
    os_errors,
    present,
    refuse_kind,
)
from tallystick.errors import StorageError, UsageError, storage_error

Chunk = Any  # bytes, memoryview or a C-contiguous numpy array
TEMPORARY_SUFFIX = ".part"


class _Os:
    """What reaches the operating system; replaced one by one by the crash tests."""

    @staticmethod
    def write(descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    @staticmethod
    def fsync(descriptor: int) -> None:
        os.fsync(descriptor)

    @staticmethod
    def replace(source: Path, target: Path) -> None:
        os.replace(source, target)


OS = _Os()


def write_all(descriptor: int, data: Chunk) -> None:
    """Write every byte of `data`. Raises OSError."""
    view = memoryview(data).cast("B")
    while view.nbytes:
        view = view[OS.write(descriptor, view) :]


def sync_path(path: Path, fsync: Callable[[int], None]) -> None:
    """Make a file that was just written, or the renames in a directory, durable by `fsync`.

    Raises StorageError.
    """
    with os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make renames in `path` durable. Raises StorageError."""
    sync_path(path, OS.fsync)


def create_temporary(path: Path, mode: int = 0o644) -> tuple[int, Path]:
    """A new, empty file beside `path`, open for writing, that is to get its name.

    Whatever has the temporary name is removed first; where a link leads is left alone. Raises
    StorageError where `path` is a directory, a device, a FIFO or a socket; OSError.
    """
    found = mode_of(path)
    if found and not stat.S_ISREG(found):
        raise StorageError(
            f"{path} is {kind_of(found)}, which no file replaces.", "Name another file."
        )
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(temporary, flags, mode), temporary


def create_new(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write `data` to `path`, which must be new. Raises FileExistsError, OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        write_all(descriptor, data)
        OS.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, chunks: Iterable[Chunk], mode: int = 0o644) -> None:
    """Write `path` atomically and durably. Raises StorageError; the old file then stays."""
    temporary: Path | None = None
    try:
        descriptor, temporary = create_temporary(path, mode)
        try:
            write_chunks(descriptor, chunks, OS.write)
            OS.fsync(descriptor)
        finally:
            os.close(descriptor)
        OS.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from error


def make_directory(path: Path, inside: Path | None = None) -> None:
    """Create `path` and its parents. Raises StorageError, UsageError where a file is in the way,
    CorruptFileError where a link leads to `path` from `inside`."""
    if inside is not None:
        check_directory(path, inside)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{path} is a file.", "Name a directory.") from None
    except OSError as error:
        raise storage_error(path, error) from error


def clone_or_copy(source: Path, target: Path, inside: Path | None = None) -> None:
    """`target` becomes a copy of `source`, a regular file (of the directory `inside`), that shares
    no byte with it: a clone where the file system makes one. Never a hard link: whoever then
    alters a run would alter the job too. Raises StorageError, CorruptFileError.
    """
    if present(target):
        return
    reader, _ = open_file(source, "file", inside)
    temporary: Path | None = None
    try:
        with reader:
            writer, temporary = create_temporary(target)
            try:
                if not _clone(reader.fileno(), writer):
                    while chunk := reader.read(_COPY_BYTES):
                        write_all(writer, chunk)
                OS.fsync(writer)
            finally:
                os.close(writer)
        OS.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise storage_error(target, error) from error


_COPY_BYTES = 8 << 20
_FICLONE = 0x40049409  # Linux: share extents, copy on write


def _clone(source: int, target: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def free_bytes(path: Path) -> int:
    """Bytes an ordinary user may still write on the disk that holds `path` or its parent."""
    while not mode_of(path) and path != path.parent:
        path = path.parent
    with os_errors(path):
        return shutil.disk_usage(path).free


def remove_temporaries(directory: Path, inside: Path) -> None:
    """Drop what a killed process left half written."""
    for name in names(directory, inside):
        if name.endswith(TEMPORARY_SUFFIX):
            with suppress(OSError):
                os.unlink(directory / name)


@contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """Hold the exclusive lock file `path`, made if need be; no link is followed.

    Raises StorageError when another process has it, CorruptFileError where it is no plain file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if present(path):
        _require_plain(path, os.lstat(path).st_mode)
    with os_errors(path):
        file = os.fdopen(os.open(path, flags, 0o644), "ab")
    try:
        _require_plain(path, os.fstat(file.fileno()).st_mode)
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StorageError(
                f"Another trainer is writing {path.parent}.",
                "Wait for it to end, or choose another --out directory.",
            ) from None
        yield file
    finally:
        file.close()


def _require_plain(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        refuse_kind(path, "lock file", mode)
