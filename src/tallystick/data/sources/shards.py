"""Shards: tar files of samples (as webdataset has them), .npz and .safetensors files of columns."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tallystick.commit.encoding import JsonValue
from tallystick.commit.tensor import DTYPES, Array
from tallystick.data.rules import Block
from tallystick.data.sources.base import collected, rows_per_block
from tallystick.data.sources.images import SUFFIXES, decode
from tallystick.disk.regular import open_file
from tallystick.disk.tensorfile import open_tensors
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS

_NUMBERS = (".cls", ".index", ".id")


class TarSource:
    """Samples of tar files: members of one name up to the first dot are one record.

    A field's name is the rest of the member's: `0001.jpg` and `0001.cls` give the fields jpg and
    cls. Images, .npy arrays and whole numbers (.cls, .index, .id) are taken; text is refused.
    """

    again = True
    count = None

    def __init__(self, files: Sequence[Path], fields: tuple[str, ...] | None) -> None:
        self._files, self._fields = list(files), fields

    def words(self) -> dict[str, JsonValue]:
        return {"kind": "tar", "files": len(self._files)}

    def blocks(self) -> Iterator[Block]:
        return collected(self._samples(), None)

    def _samples(self) -> Iterator[dict[str, Any]]:
        for path in self._files:
            file, _ = open_file(path, "tar file")
            with file:
                try:
                    yield from self._of(path, file)
                except tarfile.TarError as error:
                    raise CorruptFileError(
                        f"{path} cannot be read as tar: {str(error)[:120]}.", "Make it again."
                    ) from None

    def _of(self, path: Path, file: BinaryIO) -> Iterator[dict[str, Any]]:
        key, sample = "", dict[str, Any]()
        with tarfile.open(fileobj=file, mode="r|*") as shard:
            for member in shard:
                if not member.isfile():
                    continue
                folder, _, base = member.name.rpartition("/")
                stem, _, field = base.partition(".")
                if f"{folder}/{stem}" != key and sample:
                    yield sample
                    sample = {}
                key = f"{folder}/{stem}"
                if self._fields is not None and field not in self._fields:
                    continue
                if member.size > LIMITS.long_record_bytes:
                    raise UsageError(
                        f"{member.name} in {path.name} has {member.size} bytes.",
                        f"A record has at most {LIMITS.long_record_bytes}.",
                    )
                content = shard.extractfile(member)
                assert content is not None
                sample[field] = _decoded(f"{path.name}: {member.name}", field, content.read())
                shard.members = []  # type: ignore[attr-defined]  # a stream's members are never asked for again
        if sample:
            yield sample


def _decoded(name: str, field: str, data: bytes) -> Any:
    suffix = "." + field.rpartition(".")[2].lower()
    if suffix in SUFFIXES:
        return decode(io.BytesIO(data), name, None)
    if suffix == ".npy":
        stream = io.BytesIO(data)
        shape, dtype = _npy_header(stream, name)
        return np.frombuffer(data, dtype, offset=stream.tell()).reshape(shape)
    if suffix in _NUMBERS:
        try:
            return int(data)
        except ValueError:
            raise UsageError(f"{name} is not a whole number.", "Repair the shard.") from None
    raise UsageError(
        f"{name}: a member of this kind has no numbers.",
        "Leave it out with fields=[...], or write an .npy member in its place.",
    )


def _npy_header(file: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an .npy stream; only C order and plain numbers. Raises UsageError."""
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(file)
    except (ValueError, KeyError, OSError, EOFError) as error:
        raise CorruptFileError(
            f"{name} is not an array of numpy: {str(error)[:120]}.", "Make it again."
        ) from None
    if dtype.hasobject or (fortran and len(shape) > 1):
        raise UsageError(
            f"{name} holds objects, or is in Fortran order.", "Save it as a plain C-order array."
        )
    return shape, dtype


class ColumnFilesSource:
    """Files of columns, one array (n, ...) for each field: .safetensors or .npz, in their order.

    A file is read a few rows at a time, so it may be larger than the memory.
    """

    again = True

    def __init__(self, files: Sequence[Path], fields: tuple[str, ...] | None) -> None:
        self._files, self._fields = list(files), fields
        self.count = 0
        for path in self._files:
            with ExitStack() as stack:
                types, _ = self._open(path, stack)
                self.count += next(iter(types.values()))[1][0]

    def words(self) -> dict[str, JsonValue]:
        return {"kind": "column files", "files": len(self._files)}

    def _open(
        self, path: Path, stack: ExitStack
    ) -> tuple[dict[str, tuple[np.dtype[Any], tuple[int, ...]]], Any]:
        """(dtype, shape) by field, and a function that gives the next n rows of each."""
        if path.suffix == ".npz":
            types, reader = _open_npz(path, stack)
        else:
            types, reader = _open_safetensors(path, stack)
        names = self._fields if self._fields is not None else tuple(types)
        for name in names:
            if name not in types:
                raise UsageError(
                    f"{path.name} has no array {name!r}.", f"It has {', '.join(sorted(types))}."
                )
        chosen = {name: types[name] for name in names}
        lengths = {shape[0] if shape else -1 for _, shape in chosen.values()}
        if len(lengths) != 1 or -1 in lengths:
            raise UsageError(
                f"The arrays of {path.name} have {sorted(lengths)} records.",
                "Every field needs the same number of records.",
            )
        return chosen, reader

    def blocks(self) -> Iterator[Block]:
        for path in self._files:
            with ExitStack() as stack:
                types, reader = self._open(path, stack)
                total = next(iter(types.values()))[1][0]
                size = sum(d.itemsize * int(np.prod(s[1:])) for d, s in types.values())
                rows = rows_per_block(size)
                for start in range(0, total, rows):
                    stop = min(total, start + rows)
                    yield {name: reader(name, start, stop) for name in types}


def _open_safetensors(path: Path, stack: ExitStack) -> tuple[dict[str, Any], Any]:
    found = stack.enter_context(open_tensors(path, "data file", strict=False))
    types = {name: (DTYPES[dtype], shape) for name, (dtype, shape) in found.types.items()}

    def rows(name: str, start: int, stop: int) -> Array:
        dtype, shape = types[name]
        width = dtype.itemsize * int(np.prod(shape[1:]))
        return found.read_rows(name, start, stop, np.empty((stop - start) * width, np.uint8))

    return types, rows


def _open_npz(path: Path, stack: ExitStack) -> tuple[dict[str, Any], Any]:
    file, _ = open_file(path, "data file")
    stack.enter_context(file)
    try:
        archive = stack.enter_context(zipfile.ZipFile(file))
        members = {
            n.removesuffix(".npy"): stack.enter_context(archive.open(n)) for n in archive.namelist()
        }
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise CorruptFileError(
            f"{path} cannot be read as .npz: {str(error)[:120]}.", "Make it again."
        ) from None
    types = {name: _npy_header(m, f"{path.name}: {name}")[::-1] for name, m in members.items()}

    def rows(name: str, start: int, stop: int) -> Array:
        dtype, shape = types[name]
        size = (stop - start) * dtype.itemsize * int(np.prod(shape[1:]))
        try:
            data = members[name].read(size)
        except (zipfile.BadZipFile, OSError, EOFError):
            data = b""
        if len(data) != size:
            raise CorruptFileError(f"{path}: array {name!r} is cut short.", "Make it again.")
        return np.frombuffer(data, dtype).reshape(stop - start, *shape[1:])

    return types, rows
