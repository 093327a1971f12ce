"""Opens files that another party may have put there, and refuses all but plain files.

Theory of operation. A path that a person has named may be a link, but must end at a regular file.
The caller names a file of a run or a job with `inside`, its directory, which may be a link itself.
Below that directory every component is opened without following links, so that no file outside is
reached. The kind of a file is checked before it is opened, because opening a FIFO waits and opening
a device may have effects; it is checked once more on the open file. A reader knows the size before
the first byte and reads exactly that. Lists of directories are bounded (limits.directory_entries).
Below a mount (disk/mounts.py) a file that lies elsewhere comes before it is opened.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from tallystick.disk import mounts
from tallystick.errors import CorruptFileError, StorageError, storage_error
from tallystick.limits import LIMITS

_OPEN = os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)
_CHANCES = 3
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# `present` takes these for "no such file": the name or a directory on the way does not exist.
_NOTHING = (errno.ENOENT, errno.ENOTDIR)
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str:
    """The kind of a file with this `st_mode`, in words for a person."""
    return next((name for test, name in _KINDS if test(mode)), "a regular file")


def refuse_kind(path: Path, what: str, mode: int) -> NoReturn:
    """Raise CorruptFileError: `path` should be the file `what` and is no regular file."""
    raise CorruptFileError(
        f"The {what} {path} is {kind_of(mode)}, not a regular file.",
        "Replace it with a plain copy of the file.",
    )


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Turn every fault of the operating system at `path` into a StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error
    except ValueError:  # a NUL byte in a name
        raise StorageError(
            f"{str(path)!r} cannot be the name of a file.", "Check the name."
        ) from None


@contextmanager
def _within(path: Path, inside: Path | None) -> Iterator[tuple[int | None, Path | str]]:
    """The open directory of `path`, and the file's name in it; without `inside`, None and `path`.

    Raises CorruptFileError where a component on the way is a link or no directory, OSError.
    """
    if inside is None:
        yield None, path
        return
    *directories, name = path.relative_to(inside).parts
    descriptor = os.open(inside, _DIRECTORY)
    try:
        at = inside
        for part in directories:
            at = at / part
            _require_real_directory(at, os.lstat(part, dir_fd=descriptor).st_mode)
            below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor, name
    finally:
        os.close(descriptor)


def _require_real_directory(path: Path, mode: int) -> None:
    if not stat.S_ISDIR(mode):
        raise CorruptFileError(
            f"{path} is {kind_of(mode)}, not a directory.",
            "Replace it with a real directory. Links inside a run or a job are not followed.",
        )


def _require_passable(path: Path, what: str = "") -> None:
    """Raise CorruptFileError where a mount has neither a file nor a directory at `path` or on the
    way to it. `what` names the file that `path` should be; without it a directory is wanted."""
    found = mounts.obstacle(path)
    if found is not None and what and found[0] == path:
        refuse_kind(path, what, found[1])
    if found is not None:
        _require_real_directory(*found)
    if what and mounts.children(path):
        refuse_kind(path, what, mounts.FOLDER)


def check_directory(path: Path, inside: Path) -> None:
    """Raise CorruptFileError unless `path` is missing or a directory without a link on the way.

    The way starts at `inside`, which may itself be a link. Raises StorageError.
    """
    _require_passable(path)
    mounts.children(path)
    with os_errors(path), suppress(FileNotFoundError):
        os.close(_open_directory(path, inside))


def open_regular(
    path: Path,
    what: str,
    inside: Path | None = None,
    flags: int = os.O_RDONLY,
    limit: int | None = None,
) -> int:
    """A descriptor of the regular file `path`, close-on-exec; `flags` are os.open's.

    Of a mount's file no more than `limit` bytes are fetched.
    Raises CorruptFileError, which names the kind, for any other file and for a link inside
    `inside`; StorageError where it is missing or cannot be opened.
    """
    _require_passable(path, what)
    with os_errors(path):
        for chance in range(_CHANCES):
            try:
                with mounts.held(path, what, limit):
                    descriptor = _open(path, what, inside, flags)
                break
            except FileNotFoundError:
                # Another process of the same mirror has just let it go.
                if chance + 1 == _CHANCES or mounts.elsewhere(path) is None:
                    why = f"The {what} {path} is missing."
                    raise StorageError(why, "Check the path.") from None
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):  # changed between the two looks
            os.close(descriptor)
            refuse_kind(path, what, mode)
    return descriptor


def _open(path: Path, what: str, inside: Path | None, flags: int) -> int:
    with _within(path, inside) as (at, name):
        follow = inside is None
        mode = os.stat(name, dir_fd=at, follow_symlinks=follow).st_mode
        if not stat.S_ISREG(mode):
            refuse_kind(path, what, mode)
        stay = 0 if follow else os.O_NOFOLLOW
        return os.open(name, flags | _OPEN | stay, dir_fd=at)


def open_file(
    path: Path, what: str, inside: Path | None = None, limit: int | None = None
) -> tuple[BinaryIO, int]:
    """The regular file `path`, open for reading, and its size in bytes. Raises as open_regular."""
    file = os.fdopen(open_regular(path, what, inside, limit=limit), "rb")
    return file, os.fstat(file.fileno()).st_size


def open_beginning(
    path: Path, what: str, count: int, inside: Path | None = None
) -> tuple[BinaryIO, int]:
    """As `open_file`, for a reader that needs the first `count` bytes before it wants the others:
    a mount's file has only these, in memory. Raises as open_regular."""
    found = mounts.beginning(path, count)
    if found is None:
        return open_file(path, what, inside)
    return io.BytesIO(found[0]), found[1]


def read_file(path: Path, limit: int, what: str, inside: Path | None = None) -> bytes:
    """All bytes of `path`. More than `limit` are refused before the first is read.

    Raises as open_regular, and CorruptFileError where it is too large or changes meanwhile.
    """
    file, size = open_file(path, what, inside, limit)
    with os_errors(path), file:
        if size > limit:
            raise CorruptFileError(
                f"The {what} {path} has {size} bytes, more than the limit of {limit}.",
                "Ask its sender for an intact copy.",
            )
        data = file.read(size + 1)
    if len(data) != size:
        raise CorruptFileError(
            f"The {what} {path} changed while it was read. It had {size} bytes.",
            "Try again when no process writes it.",
        )
    return data


def map_file(file: BinaryIO, size: int, private: bool = False) -> mmap.mmap:
    """The first `size` bytes of a file of `open_file`, mapped read-only; a `private` map can be
    written, which changes no file. Raises OSError."""
    return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY if private else mmap.ACCESS_READ)


class DirectoryEntry(NamedTuple):
    """One name in a directory; `size` is 0 unless it is a regular file."""

    name: str
    mode: int
    size: int


def names(
    directory: Path, inside: Path | None = None, limit: int = LIMITS.directory_entries
) -> list[str]:
    """Names in `directory`, in no order; none where it is missing.

    Raises CorruptFileError where it is no directory, a link leads to it from `inside`, or it has
    more than `limit` names; StorageError.
    """
    return [name for name, _ in _listed(directory, inside, limit)]


def entries(directory: Path, inside: Path | None = None) -> list[DirectoryEntry]:
    """As `names`, with the kind of each one. Raises the same errors."""
    return [
        DirectoryEntry(name, found.st_mode, found.st_size if stat.S_ISREG(found.st_mode) else 0)
        for name, found in statuses(directory, inside)
    ]


def statuses(directory: Path, inside: Path | None = None) -> list[tuple[str, os.stat_result]]:
    """As `names`, with what `lstat` says of each one. Raises the same errors."""
    return _listed(directory, inside, LIMITS.directory_entries, looked=True)


_UNSEEN = os.stat_result((0,) * 10)


def _elsewhere(directory: Path) -> dict[str, os.stat_result]:
    """What lies elsewhere of a directory, as if it were here."""
    _require_passable(directory)
    return {
        name: os.stat_result((seen.mode, 0, 0, 0, 0, 0, seen.size, 0, 0, 0))
        for name, seen in mounts.children(directory).items()
    }


def _listed(
    directory: Path, inside: Path | None, limit: int, looked: bool = False
) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    elsewhere = _elsewhere(directory)
    with os_errors(directory):
        try:
            descriptor = _open_directory(directory, inside)
        except FileNotFoundError:
            return []
        try:
            with os.scandir(descriptor) as listing:
                for entry in listing:
                    if len(found) == limit:
                        raise CorruptFileError(
                            f"The directory {directory} has more than {limit} entries.",
                            "Remove the files that do not belong there.",
                        )
                    with suppress(FileNotFoundError):  # a writer has just renamed it
                        seen = entry.stat(follow_symlinks=False) if looked else _UNSEEN
                        found.append((entry.name, elsewhere.pop(entry.name, seen)))
        finally:
            os.close(descriptor)
    found += elsewhere.items()
    return found


def _open_directory(directory: Path, inside: Path | None) -> int:
    if directory == inside:
        inside = None  # the directory that was named may be a link
    with _within(directory, inside) as (at, name):
        follow = inside is None
        _require_real_directory(directory, os.stat(name, dir_fd=at, follow_symlinks=follow).st_mode)
        return os.open(name, _DIRECTORY | (0 if follow else os.O_NOFOLLOW), dir_fd=at)


def present(path: Path) -> bool:
    """True if a file of any kind has this name, a dangling link included. Raises StorageError.

    Of a mount also where something stands in the way: whoever opens the file is told what."""
    if mounts.obstacle(path) or mounts.elsewhere(path) or mounts.children(path):
        return True
    with os_errors(path):
        try:
            os.lstat(path)
        except OSError as error:
            if error.errno in _NOTHING:
                return False
            raise
    return True


def mode_of(path: Path) -> int:
    """`st_mode` of the target of `path`, named by a person; 0 without one. Raises StorageError."""
    seen = mounts.elsewhere(path)
    if seen is not None:
        return seen.mode
    mounts.children(path)
    with os_errors(path):
        try:
            return os.stat(path).st_mode
        except OSError as error:
            if error.errno in _NOTHING:
                return 0
            raise


def is_directory(path: Path) -> bool:
    """True if `path`, named by a person, is a directory or a link to one. Raises StorageError."""
    return stat.S_ISDIR(mode_of(path))


def size_of(path: Path, what: str, inside: Path | None = None) -> int:
    """The size in bytes of the regular file `path`; does not open it. Raises as open_regular."""
    _require_passable(path, what)
    seen = mounts.elsewhere(path)
    if seen is not None:
        return seen.size
    found = look(path, inside)
    if found is None:
        raise StorageError(f"The {what} {path} is missing.", "Check the path.")
    if not stat.S_ISREG(found.st_mode):
        refuse_kind(path, what, found.st_mode)
    return found.st_size


def look(path: Path, inside: Path | None) -> os.stat_result | None:
    """What is at `path`, a link itself with `inside`; None where nothing is. Raises
    CorruptFileError where a component on the way from `inside` is no directory, StorageError."""
    with os_errors(path):
        try:
            with _within(path, inside) as (at, name):
                return os.stat(name, dir_fd=at, follow_symlinks=inside is None)
        except FileNotFoundError:
            return None


def lies_in(path: Path, directory: Path) -> bool:
    """True if `path` leads to `directory` or to a file below it. Raises StorageError."""
    with os_errors(path):
        return path.resolve().is_relative_to(directory.resolve())


def same_file(a: Path, b: Path) -> bool:
    """True if two paths lead to one existing file. Raises StorageError."""
    if not (mode_of(a) and mode_of(b)):
        return False
    with os_errors(a):
        return os.path.samefile(a, b)
