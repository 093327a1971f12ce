"""Columns of records written as they come, into one safetensors file (disk/tensorfile.py).

Theory of operation. The file has one tensor (N, *field shape) for each field, one after the other,
so a row of each block goes to as many places as there are fields. If N is known before the first
row, so are the header and every place, and rows go where they belong. If not, each field has a file
of its own until the last row is known; the fields then move into the file from their ends, and each
temporary file is cut by what has moved. So the disk holds every byte once, plus one block.

One thread writes while the caller makes the next rows; at most `_WAITING` blocks wait for it. What
is written is flushed every `_FLUSH` bytes and dropped from the page cache, so that neither the
memory nor the progress shown runs ahead of the disk. Nothing of an unfinished file is used again:
until `finish` the file has no name of its own, and a killed writer leaves only temporary files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tallystick.commit.tensor import DTYPES, Array, canonical_array
from tallystick.disk.files import (
    OS,
    TEMPORARY_SUFFIX,
    Replacement,
    create_temporary,
    remove,
    sync_path,
    write_all,
)
from tallystick.disk.regular import os_errors
from tallystick.disk.tensorfile import header_bytes
from tallystick.errors import UsageError

_FLUSH = 256 << 20
_WAITING = 2
_MOVE = 8 << 20

FieldTypes = Mapping[str, tuple[str, tuple[int, ...]]]  # (dtype, shape of one record) by name


def file_bytes(fields: FieldTypes, count: int) -> int:
    """Bytes of the file with `count` records."""
    header, ranges = header_bytes(_types(fields, count), {})
    return len(header) + max((end for _, end in ranges.values()), default=0)


def _types(fields: FieldTypes, count: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (dtype, (count, *shape)) for name, (dtype, shape) in fields.items()}


class ColumnWriter:
    """Writes records in their order; as a context it drops an unfinished file at the end.

    `count` is the number of records, where it is known. Raises StorageError, here and in every
    method.
    """

    def __init__(self, path: Path, fields: FieldTypes, count: int | None) -> None:
        self.path, self.count = path, count
        self.written = 0
        self._fields = dict(fields)
        self._rows = {name: _width(*type_) for name, type_ in self._fields.items()}
        self._thread = ThreadPoolExecutor(1, "tallystick-columns")
        self._waiting: list[Future[None]] = []
        self._unflushed = 0
        self._own: dict[str, tuple[int, Path]] = {}
        self._file = Replacement(path)
        try:
            if count is not None:
                header, ranges = header_bytes(_types(self._fields, count), {})
                self._file.write(header)
                self._places = {name: len(header) + start for name, (start, _) in ranges.items()}
            else:
                for number, name in enumerate(sorted(self._fields)):
                    with os_errors(path):
                        own = path.with_name(f"{path.name}.{number}")
                        self._own[name] = create_temporary(own)
        except BaseException:
            self.discard()
            raise

    def add(self, columns: Mapping[str, Array]) -> None:
        """Append the rows of `columns`, one array (n, *field shape) for each field. The arrays
        must not change after the call."""
        rows = len(next(iter(columns.values())))
        if self.count is not None and self.written + rows > self.count:
            raise UsageError(
                f"The source states a length of {self.count} records, but it gives more.",
                "Use a source whose length is the number of records that it gives.",
            )
        while len(self._waiting) >= _WAITING:
            self._waiting.pop(0).result()
        self._waiting.append(self._thread.submit(self._write, dict(columns), self.written))
        self.written += rows

    def _write(self, columns: dict[str, Array], first: int) -> None:
        with os_errors(self.path):
            for name, column in columns.items():
                width = self._rows[name]
                if not width or not len(column):
                    continue
                data = canonical_array(column)
                if name in self._own:
                    descriptor = self._own[name][0]
                else:
                    descriptor = self._file.descriptor
                    os.lseek(descriptor, self._places[name] + first * width, os.SEEK_SET)
                write_all(descriptor, data.reshape(-1).view("u1"))
                self._unflushed += data.nbytes
            if self._unflushed >= _FLUSH:
                self._flush()

    def _flush(self) -> None:
        self._unflushed = 0
        for descriptor in (self._file.descriptor, *(d for d, _ in self._own.values())):
            OS.fsync(descriptor)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def finish(self) -> None:
        """Wait for the writing, make the file durable and give it its name. Raises UsageError where
        there are fewer records than the source said."""
        for waiting in self._waiting:
            waiting.result()
        self._waiting = []
        if self.count is not None and self.written < self.count:
            raise UsageError(
                f"The source states a length of {self.count} records, but it gives {self.written}.",
                "Use a source whose length is the number of records that it gives.",
            )
        if self.count is None:
            self._join()
        self._file.finish()
        self._thread.shutdown()
        sync_path(self.path.parent)

    def _join(self) -> None:
        """Move each field's rows from its own file into the file, from the last to the first."""
        header, ranges = header_bytes(_types(self._fields, self.written), {})
        self._file.write(header)
        with os_errors(self.path):
            for name, (start, end) in ranges.items():
                descriptor, own = self._own.pop(name)
                left = end - start
                os.close(descriptor)
                descriptor = os.open(own, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    while left:
                        size = min(left, _MOVE)
                        left -= size
                        part = os.pread(descriptor, size, left)
                        if len(part) != size:
                            raise OSError(f"{own} is shorter than what was written to it")
                        os.lseek(self._file.descriptor, len(header) + start + left, os.SEEK_SET)
                        write_all(self._file.descriptor, part)
                        os.ftruncate(descriptor, left)
                        self._unflushed += size
                        if self._unflushed >= _FLUSH:
                            self._flush()
                finally:
                    os.close(descriptor)
                    remove(own)

    def discard(self) -> None:
        """Drop the unfinished file; after `finish` this has no effect."""
        self._thread.shutdown(cancel_futures=True)
        self._file.discard()
        for descriptor, own in self._own.values():
            with suppress(OSError):
                os.close(descriptor)
            remove(own)
        self._own = {}

    def __enter__(self) -> ColumnWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _width(dtype: str, shape: tuple[int, ...]) -> int:
    size = DTYPES[dtype].itemsize
    for d in shape:
        size *= d
    return size


def is_left_over(name: str, of: str) -> bool:
    """True if a killed `ColumnWriter` of a file named `of` left the file `name`."""
    return (name.startswith(of + ".") and name.endswith(TEMPORARY_SUFFIX)) or name == of + (
        TEMPORARY_SUFFIX
    )
