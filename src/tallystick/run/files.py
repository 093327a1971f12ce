"""The only door to the disk for jobs and runs: durable writes, bounded reads, the run lock.

Every write goes through the three functions of `OS`, so that a test can make the n-th one fail
or kill the process. A file that replaces another is written beside it, flushed, renamed, and
its directory flushed: at any moment a reader finds the old or the new one, whole.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tallystick.errors import CorruptFileError, StorageError, UsageError
from tallystick.errors import storage_error as storage_error
from tallystick.run.direct import write_chunks

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


def sync_directory(path: Path) -> None:
    """Make renames in `path` durable. Raises StorageError."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            OS.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise storage_error(path, error) from error


def write_file(path: Path, chunks: Iterable[Chunk], mode: int = 0o644) -> None:
    """Write `path` atomically and durably. Raises StorageError; the old file then stays."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            write_chunks(descriptor, chunks, OS.write)
            OS.fsync(descriptor)
        finally:
            os.close(descriptor)
        OS.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise storage_error(path, error) from error


def make_directory(path: Path) -> None:
    """Create `path` and its parents. Raises StorageError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{path} is a file.", "Name a directory.") from None
    except OSError as error:
        raise storage_error(path, error) from error


def read_file(path: Path, limit: int, what: str) -> bytes:
    """All bytes of `path`, refused above `limit` before they are read.

    Raises StorageError where it cannot be read, CorruptFileError where it is too large.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise CorruptFileError(
                    f"The {what} {path} has {size} bytes, more than the limit of {limit}.",
                    "Ask its sender for an intact copy.",
                )
            return file.read(limit + 1)
    except FileNotFoundError:
        raise StorageError(f"The {what} {path} is missing.", "Check the path.") from None
    except OSError as error:
        raise storage_error(path, error) from error


def clone_or_copy(source: Path, target: Path) -> None:
    """`target` becomes a copy of `source` that shares no byte with it: a clone where the file
    system makes one. Never a hard link: whoever then alters a run would alter the job too.
    Raises StorageError.
    """
    if target.exists():
        return
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    try:
        with open(source, "rb") as reader, open(temporary, "wb") as writer:
            if not _clone(reader.fileno(), writer.fileno()):
                while chunk := reader.read(_COPY_BYTES):
                    write_all(writer.fileno(), chunk)
            OS.fsync(writer.fileno())
        OS.replace(temporary, target)
    except OSError as error:
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
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        return shutil.disk_usage(path).free
    except OSError as error:
        raise storage_error(path, error) from error


def remove_temporaries(directory: Path) -> None:
    """Drop what a killed process left half written."""
    with suppress(OSError):
        for path in directory.glob("*" + TEMPORARY_SUFFIX):
            path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """Hold the exclusive lock file `path`. Raises StorageError when another process has it."""
    try:
        file = open(path, "ab")  # noqa: SIM115 - held open for as long as the lock
    except OSError as error:
        raise storage_error(path, error) from error
    try:
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
