"""Durable writes and the run lock: runs, jobs, tensors, manifests, logs, evidence, pages.

Every write goes through the three functions of `OS`, so that a test can make the n-th one fail
or kill the process. A file that replaces another is written beside it, flushed and renamed, and
then its directory is flushed. So at any moment a reader finds the old file or the new one, whole.
The file beside it is always new: an older file of that name is removed, and never written through.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

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


class OsCalls:
    """The calls to the operating system. The crash tests replace them one by one."""

    @staticmethod
    def write(descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    @staticmethod
    def fsync(descriptor: int) -> None:
        os.fsync(descriptor)

    @staticmethod
    def replace(source: Path, target: Path) -> None:
        os.replace(source, target)


OS = OsCalls()


def write_all(descriptor: int, data: Chunk) -> None:
    """Write every byte of `data`. Raises OSError."""
    view = memoryview(data).cast("B")
    while view.nbytes:
        view = view[OS.write(descriptor, view) :]


def sync_path(path: Path) -> None:
    """Make a file that was just written, or the renames in a directory, durable.

    Raises StorageError.
    """
    with os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            OS.fsync(descriptor)
        finally:
            os.close(descriptor)


def create_temporary(path: Path, mode: int = 0o644) -> tuple[int, Path]:
    """A new, empty file beside `path`, open for writing, that is to get its name.

    A file or link of the temporary name is removed first; a link's target stays. Raises
    StorageError where `path` is a directory, a device, a FIFO or a socket; OSError.
    """
    found = mode_of(path)
    if found and not stat.S_ISREG(found):
        raise StorageError(
            f"{path} is {kind_of(found)}, which cannot be replaced by a file.",
            "Choose another file.",
        )
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(temporary, flags, mode), temporary


def open_new(path: Path) -> BinaryIO:
    """A file open for writing at `path`, which must be new. Raises FileExistsError, OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o644), "wb")


def create_new(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write `data` to `path`, which must be new. Raises FileExistsError, OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        write_all(descriptor, data)
        OS.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.unlink(path)  # half of it would keep the whole from being written
        raise
    finally:
        os.close(descriptor)


class Replacement:
    """A file under a temporary name beside `path`; `finish` gives it the name `path`.

    Raises StorageError, here and in every method that writes. The old file then stays, and no file
    is left beside it. As a context it drops an unfinished file at the end.
    """

    def __init__(self, path: Path, mode: int = 0o644) -> None:
        self.path = path
        try:
            self.descriptor, self._temporary = create_temporary(path, mode)
        except OSError as error:
            raise storage_error(path, error) from error

    def write(self, data: Chunk) -> None:
        """Append every byte of `data`."""
        with self._failing():
            write_all(self.descriptor, data)

    def write_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Append many bytes, past the page cache where the system allows it."""
        with self._failing():
            write_chunks(self.descriptor, chunks, OS.write)

    def sync(self) -> None:
        """Make what is written durable."""
        with self._failing():
            OS.fsync(self.descriptor)

    def finish(self, durable: bool = True) -> None:
        """Give the file its name.

        The name is durable after `sync_path` of the directory. If not `durable`, the caller also
        calls `sync_path` of the file before anything depends on it.
        """
        with self._failing():
            if durable:
                OS.fsync(self.descriptor)
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)
            OS.replace(self._temporary, self.path)

    def discard(self) -> None:
        """Drop the unfinished file; after `finish` this has no effect."""
        if self.descriptor >= 0:
            with suppress(OSError):
                os.close(self.descriptor)
            self.descriptor = -1
            remove(self._temporary)

    def __enter__(self) -> Replacement:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            remove(self._temporary)  # closed already where it could not be renamed
            raise storage_error(self.path, error) from error


def move(source: Path, target: Path) -> None:
    """Give a file another name on the same disk; a file of that name is replaced.

    Either name is there at every moment. The change is durable after `sync_path` of both
    directories. Raises StorageError.
    """
    with os_errors(target):
        OS.replace(source, target)


def remove(path: Path) -> None:
    """Remove a file that no step needs any more. A file that cannot be removed stays."""
    with suppress(OSError):
        os.unlink(path)


def remove_file(path: Path) -> None:
    """Remove a file, or find that it is not there. Raises StorageError."""
    with os_errors(path), suppress(FileNotFoundError):
        os.unlink(path)


def remove_all(path: Path) -> None:
    """Remove our own file, or our own directory with its files; a link is removed, not followed.
    Raises StorageError."""
    with os_errors(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            os.unlink(path)


def new_directory(prefix: str, inside: Path | None = None) -> Path:
    """An empty directory of a new name, in `inside` or where the system keeps such things.

    Raises StorageError.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=inside))
    except OSError as error:
        raise storage_error(inside or Path(tempfile.gettempdir()), error) from error


def remove_tree(directory: Path) -> None:
    """Remove our own directory and its files. A file that cannot be removed stays."""
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory outside of any run; it is removed at the end. Raises StorageError."""
    directory = new_directory("tallystick-")
    try:
        yield directory
    finally:
        remove_tree(directory)


def write_file(path: Path, chunks: Iterable[Chunk], mode: int = 0o644) -> None:
    """Write `path` atomically and durably. Raises StorageError; the old file then stays."""
    with Replacement(path, mode) as file:
        file.write_chunks(chunks)
        file.finish()
    sync_path(path.parent)


def make_directory(path: Path, inside: Path | None = None) -> None:
    """Create `path` and its parents.

    Raises StorageError, UsageError where a file is in the way, CorruptFileError where a link leads
    to `path` from `inside`.
    """
    if inside is not None:
        check_directory(path, inside)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{path} is a file, not a directory.", "Name a directory.") from None
    except OSError as error:
        raise storage_error(path, error) from error


def clone_or_copy(source: Path, target: Path, inside: Path | None = None) -> None:
    """Make `target` a copy of `source`, a regular file (of the directory `inside`).

    The copy is a clone where the file system makes one. It is never a hard link, because a later
    change to the run would change the job too. Raises StorageError, CorruptFileError.
    """
    if present(target):
        return
    reader, _ = open_file(source, "file", inside)
    with reader, Replacement(target) as file:
        if not _clone(reader.fileno(), file.descriptor):
            with os_errors(source):
                while chunk := reader.read(_COPY_BYTES):
                    file.write(chunk)
        file.finish()


def share_or_copy(source: Path, target: Path, inside: Path | None = None) -> None:
    """As `clone_or_copy`, but a file that is ours and that nobody may write gets a second name,
    where the disk makes no clone: a data set of 100 GB need not lie there three times.

    Such a file is a frozen data set's. Whoever writes into it all the same changes it under both
    names, and both are hashed before they are used. Raises StorageError, CorruptFileError.
    """
    if present(target):
        return
    reader, _ = open_file(source, "file", inside)
    with reader:
        found = os.fstat(reader.fileno())
        if found.st_mode & 0o222 or found.st_uid != os.geteuid():
            clone_or_copy(source, target, inside)
            return
        with Replacement(target) as file:
            if _clone(reader.fileno(), file.descriptor):
                os.fchmod(file.descriptor, 0o444)
                file.finish()
                return
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # another disk, or one without links
            clone_or_copy(source, target, inside)
            with os_errors(target):
                os.chmod(target, 0o444)
            return
    sync_path(target.parent)


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
    """Drop files that a killed process left half written."""
    for name in names(directory, inside):
        if name.endswith(TEMPORARY_SUFFIX):
            with suppress(OSError):
                os.unlink(directory / name)


@contextmanager
def locked(path: Path, writer: str = "trainer") -> Iterator[IO[bytes]]:
    """Hold the exclusive lock file `path`, which is made if need be. No link is followed.

    `writer` names the kind of process that holds it. Raises StorageError when another process has
    it, CorruptFileError where it is no plain file.
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
                f"Another {writer} is writing {path.parent}.",
                "Wait for it to finish, or choose another directory with --out.",
            ) from None
        yield file
    finally:
        file.close()


def _require_plain(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        refuse_kind(path, "lock file", mode)
