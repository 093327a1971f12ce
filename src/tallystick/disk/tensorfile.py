"""A strict reader and writer of safetensors files: one canonical header per content.

Any safetensors library reads what is written here. The reader takes only the bytes that the
writer would write, so a file has no byte that is not bound by the names, shapes and values a
digest covers; sizes are checked before anything is mapped or allocated.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from tallystick.commit.encoding import canonical_json
from tallystick.commit.tensor import DTYPES, Array, canonical_array, dtype_name
from tallystick.disk.files import write_file
from tallystick.disk.regular import map_file, open_beginning, open_file, os_errors
from tallystick.disk.snapshot import Snapshot
from tallystick.errors import CorruptFileError, UsageError, storage_error
from tallystick.limits import LIMITS

_NAMES = {
    "f32": "F32", "f64": "F64", "i64": "I64", "i32": "I32", "u8": "U8", "bool": "BOOL",
    "bf16": "BF16", "f16": "F16",
}  # fmt: skip
_DTYPES = {file_name: name for name, file_name in _NAMES.items()}
_FIRST = 64 << 10  # of a file that lies elsewhere: mostly the whole header
_ALIGN = 64  # data begin: a mapped tensor is aligned for every dtype and vector width
METADATA = "__metadata__"
_Type = tuple[str, tuple[int, ...]]
FileTypes = Mapping[str, _Type]  # (dtype, shape) by tensor name
# Looks at what a header says before a byte of data is read; raises to refuse it.
Check = Callable[[FileTypes, Mapping[str, str]], None]


def _order(item: tuple[str, tuple[str, tuple[int, ...]]]) -> tuple[int, bytes]:
    # Wide elements first keeps every tensor aligned to its own element size.
    name, (dtype, _) = item
    return (-DTYPES[dtype].itemsize, name.encode("utf-8"))


def _nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    size = DTYPES[dtype].itemsize
    for d in shape:
        size *= d
    return size


def header_bytes(
    types: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The canonical header, and the byte range of each tensor after it, in file order."""
    ranges: dict[str, tuple[int, int]] = {}
    at = 0
    table: dict[str, object] = {}
    for name, (dtype, shape) in sorted(types.items(), key=_order):
        if name == METADATA:
            raise UsageError(f"A tensor cannot be named {METADATA}.", "Rename it.")
        end = at + _nbytes(dtype, shape)
        ranges[name] = (at, end)
        table[name] = {"data_offsets": [at, end], "dtype": _NAMES[dtype], "shape": list(shape)}
        at = end
    if metadata:
        table[METADATA] = dict(metadata)
    body = canonical_json(table)  # type: ignore[arg-type]
    body += b" " * (-(8 + len(body)) % _ALIGN)
    return len(body).to_bytes(8, "little") + body, ranges


def write_tensors(
    path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write `tensors` atomically and durably. Raises StorageError."""
    write_file(path, tensor_chunks(Snapshot(tensors), metadata))


def write_each(
    path: Path,
    types: FileTypes,
    pieces: Callable[[str], Iterable[Array]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """As `write_tensors`, piece by piece: the elements of each tensor are asked for once, in the
    file's order and row-major, and are not kept. Raises StorageError, and what `pieces` raises; the
    old file then stays."""
    header, ranges = header_bytes(types, metadata or {})

    def chunks() -> Generator[object]:
        yield header
        for name in ranges:
            for piece in pieces(name):
                array = canonical_array(piece)
                if array.size:
                    yield array.reshape(-1).view(np.uint8)

    made = chunks()
    try:
        write_file(path, made)
    finally:
        made.close()  # `pieces` may have to end something, before the caller goes on


def tensor_chunks(
    snapshot: Snapshot, metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | Array]:
    """The bytes of the file that `write_tensors` writes, in pieces that are read as they are
    asked for: each is valid until the next one."""
    header, ranges = header_bytes(snapshot.types, metadata or {})
    yield header
    yield from snapshot.pieces(list(ranges))


def file_size(tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> int:
    """Bytes `write_tensors` would write."""
    types = {n: (dtype_name(a.dtype), tuple(map(int, a.shape))) for n, a in tensors.items()}
    header, ranges = header_bytes(types, metadata or {})
    return len(header) + max((end for _, end in ranges.values()), default=0)


def read_tensors(
    path: Path,
    what: str,
    *,
    copy: bool = False,
    strict: bool = True,
    check: Check | None = None,
    inside: Path | None = None,
) -> tuple[dict[str, Array], dict[str, str]]:
    """(tensors, metadata) of a file that `write_tensors` wrote.

    Tensors are read-only views of a memory map, or writable copies. Without `strict`, any well
    formed safetensors file is taken, whoever wrote it: no name twice, and each byte after the
    header in exactly one tensor. `check` sees types and metadata before any data is read, mapped
    or allocated for. A file of a run or a job is opened `inside` its directory. Raises
    StorageError where the file cannot be read, CorruptFileError for anything but the canonical
    form. Values are not checked here: that is what digests are for.
    """
    with open_tensors(path, what, strict=strict, check=check, inside=inside) as found:
        try:
            if copy:
                return _read_each(found.file, found.types, found.places, found.fail), found.metadata
            mapped = map_file(found.file, found.size)
        except OSError as error:
            raise storage_error(path, error) from error
    tensors: dict[str, Array] = {}
    for name, place in found.places.items():
        dtype, shape = found.types[name]
        count = _nbytes(dtype, shape) // DTYPES[dtype].itemsize
        tensors[name] = np.frombuffer(mapped, DTYPES[dtype], count, place).reshape(shape)
    return tensors, found.metadata


@dataclass(frozen=True)
class TensorFile:
    """An open file whose header is checked. `places` has each tensor's first byte in the file."""

    path: Path
    file: BinaryIO
    size: int
    types: dict[str, _Type]
    places: dict[str, int]
    metadata: dict[str, str]
    fail: Callable[[str], NoReturn]

    def raw(self, name: str) -> Array:
        """All bytes of a tensor, u8[n]. Raises StorageError, CorruptFileError for a file that was
        cut meanwhile."""
        dtype, shape = self.types[name]
        out = np.empty(_nbytes(dtype, shape), np.uint8)
        self._read(out.data, self.places[name])
        return out

    def elements(self, name: str, start: int, stop: int) -> Array:
        """Elements [start, stop) of a tensor, row-major, 1-d. Raises as `raw`."""
        out = np.empty(stop - start, DTYPES[self.types[name][0]])
        self._read(out.view(np.uint8).data, self.places[name] + start * out.itemsize)
        return out

    def read_rows(self, name: str, start: int, stop: int, out: Array) -> Array:
        """Rows [start, stop) along the first axis, read into the start of `out`, which is
        u8[n]. Returns them as an array of the tensor's dtype. Nothing is mapped, so the memory is
        that of `out`. Raises StorageError, CorruptFileError for a file that was cut meanwhile.
        """
        dtype, shape = self.types[name]
        width = _nbytes(dtype, shape[1:])
        self._read(out.data[: (stop - start) * width], self.places[name] + start * width)
        rows = out[: (stop - start) * width].view(DTYPES[dtype])
        return rows.reshape(stop - start, *shape[1:])

    def _read(self, view: memoryview, at: int) -> None:
        with os_errors(self.path):
            while view.nbytes:
                got = os.preadv(self.file.fileno(), [view], at)
                if not got:
                    self.fail("it was cut short while it was read")
                view, at = view[got:], at + got


@contextmanager
def open_tensors(
    path: Path,
    what: str,
    *,
    strict: bool = True,
    check: Check | None = None,
    inside: Path | None = None,
) -> Iterator[TensorFile]:
    """The file at `path`, open, its header checked as `read_tensors` does. Raises its errors."""

    def fail(why: str) -> NoReturn:
        raise CorruptFileError(
            f"The {what} {path} is corrupt: {why}.", "Restore it from an intact copy."
        )

    file, size = open_beginning(path, what, _FIRST, inside)
    with file:
        prefix, length = _header_length(path, file, size, fail)
        if isinstance(file, io.BytesIO) and 8 + length > _FIRST:
            file, size = open_beginning(path, what, 8 + length, inside)
            prefix, length = _header_length(path, file, size, fail)
        with os_errors(path):
            header = file.read(length)
        types, ranges, metadata = _parse_header(header, fail)
        if strict:
            try:
                again, ranges = header_bytes(types, metadata)
            except UsageError as error:
                fail(error.message)
            if again != prefix + header:
                fail("its header is not in canonical form")
        start_of_data = 8 + length
        if start_of_data + max((end for _, end in ranges.values()), default=0) != size:
            fail("its size does not fit its header")
        if check is not None:
            check(types, metadata)
        if isinstance(file, io.BytesIO):  # only the beginning is here: now the header is believed
            file, whole = open_file(path, what, inside)
            with os_errors(path):
                if whole != size or file.read(start_of_data) != prefix + header:
                    file.close()
                    fail("it changed while it was read")
        places = {name: start_of_data + start for name, (start, _) in ranges.items()}
        with file:
            yield TensorFile(path, file, size, types, places, metadata, fail)


def _header_length(
    path: Path, file: BinaryIO, size: int, fail: Callable[[str], NoReturn]
) -> tuple[bytes, int]:
    with os_errors(path):
        prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > min(size - 8, LIMITS.manifest_bytes):
        fail("it is truncated or its header is too long")
    return prefix, length


def is_canonical(path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bool:
    """True if `path` has the header and the size that `write_tensors` would give it.

    `tensors` are those that `read_tensors` found there. Raises StorageError.
    """
    types = {n: (dtype_name(a.dtype), tuple(map(int, a.shape))) for n, a in tensors.items()}
    header, _ = header_bytes(types, metadata)
    file, size = open_file(path, "model file")
    with os_errors(path), file:
        return size == file_size(tensors, metadata) and file.read(len(header)) == header


def _read_each(
    file: BinaryIO,
    types: Mapping[str, _Type],
    places: Mapping[str, int],
    fail: Callable[[str], NoReturn],
) -> dict[str, Array]:
    """Writable tensors, read one by one: no map that would count as memory beside them."""
    tensors: dict[str, Array] = {}
    for name, place in places.items():
        dtype, shape = types[name]
        tensors[name] = np.empty(shape, DTYPES[dtype])
        if not tensors[name].size:
            continue
        file.seek(place)
        view = tensors[name].reshape(-1).view(np.uint8).data
        while view.nbytes:
            got = file.readinto(view)  # type: ignore[attr-defined]
            if not got:
                fail("it was cut short while it was read")
            view = view[got:]
    return tensors


def _parse_header(
    header: bytes, fail: Callable[[str], NoReturn]
) -> tuple[dict[str, _Type], dict[str, tuple[int, int]], dict[str, str]]:
    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            fail("its header has a name twice")
        return found

    try:
        table = json.loads(header.decode("utf-8"), object_pairs_hook=members)
    except (ValueError, RecursionError):
        fail("its header is not JSON")
    if not isinstance(table, dict) or len(table) > LIMITS.slots:
        fail("its header is not a table of tensors")
    metadata = table.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        fail("its metadata is not a table of strings")
    types: dict[str, _Type] = {}
    ranges: dict[str, tuple[int, int]] = {}
    for name, entry in table.items():
        if not isinstance(entry, dict) or set(entry) != {"data_offsets", "dtype", "shape"}:
            fail(f"the entry of tensor {name[:80]!r} is malformed")
        dtype, shape = _DTYPES.get(str(entry["dtype"])), entry["shape"]
        if dtype is None or not isinstance(shape, list) or len(shape) > LIMITS.tensor_rank:
            fail(f"the entry of tensor {name[:80]!r} is malformed")
        if any(type(d) is not int or not 0 <= d <= LIMITS.tensor_bytes for d in shape):
            fail(f"tensor {name[:80]!r} has an impossible shape")
        if _nbytes(dtype, tuple(shape)) > LIMITS.tensor_bytes:
            fail(f"tensor {name[:80]!r} is too large")
        offsets = entry["data_offsets"]
        if (
            not isinstance(offsets, list)
            or [type(v) for v in offsets] != [int, int]
            or not 0 <= offsets[0] <= offsets[1]
            or offsets[1] - offsets[0] != _nbytes(dtype, tuple(shape))
        ):
            fail(f"the data of tensor {name[:80]!r} is not where its shape allows")
        types[name], ranges[name] = (dtype, tuple(shape)), (offsets[0], offsets[1])
    at = 0
    for start, end in sorted(ranges.values()):
        if start != at:
            fail("its tensors overlap, or bytes lie between them")
        at = end
    return types, ranges, metadata
