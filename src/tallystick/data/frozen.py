"""A frozen data set: a directory with the records' file and a manifest.

    data.json               manifest: schema, number of records, data root, source, rules
    records.safetensors     one tensor (N, *field shape) for each field
    validation/             the records that were held out: a frozen data set of the same schema

The file is a job's data file as it stands, so a job takes it over without reading it into memory.
It is written once, and is read-only.

Records are read back in blocks, to be hashed: a data set may be larger than the memory. The bytes
are read and not mapped. A map's pages would count as the process's memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NoReturn

import numpy as np

from tallystick.commit.data import DataSchema, read_schema, schema_members
from tallystick.commit.encoding import JsonValue
from tallystick.commit.members import Members
from tallystick.commit.streamed import RecordStream
from tallystick.commit.tensor import Array
from tallystick.data.sources.base import rows_per_block
from tallystick.disk.files import TEMPORARY_SUFFIX
from tallystick.disk.manifest import DirectoryKind, Manifest, load_manifest
from tallystick.disk.regular import is_directory, present, size_of
from tallystick.disk.tensorfile import Check, FileTypes, TensorFile, open_tensors, read_tensors
from tallystick.errors import CorruptFileError, DigestMismatchError, UsageError
from tallystick.limits import LIMITS


def stream_file(
    path: Path, schema: DataSchema, count: int, check: Check, inside: Path, keep: bool = False
) -> RecordStream:
    """All `count` records of the file at `path`, hashed. `check` must refuse any file that does
    not have exactly the schema's columns of `count` rows. With `keep`, `tree` may follow.

    Raises StorageError, CorruptFileError.
    """
    stream = RecordStream(schema, keep)
    with open_tensors(path, "data file", check=check, inside=inside) as file:
        for block in _blocks(file, schema, count):
            stream.add(block)
    return stream


def _blocks(file: TensorFile, schema: DataSchema, count: int) -> Iterator[dict[str, Array]]:
    """The records, read one block ahead. A block is good until the next is asked for."""
    rows = min(count, rows_per_block(schema.record_size))
    buffers = [
        {f.name: np.empty(rows * f.header.nbytes, np.uint8) for f in schema.fields}
        for _ in range(2)
    ]

    def read(number: int) -> dict[str, Array]:
        start = number * rows
        stop = min(count, start + rows)
        own = buffers[number % 2]
        return {name: file.read_rows(name, start, stop, out) for name, out in own.items()}

    with ThreadPoolExecutor(1, "tallystick-reading") as thread:
        total = -(-count // rows)
        ahead = thread.submit(read, 0)
        for number in range(total):
            block = ahead.result()
            if number + 1 < total:
                ahead = thread.submit(read, number + 1)
            yield block


FORMAT = "tallystick-data/1"
MANIFEST = "data.json"
RECORDS = "records.safetensors"
VALIDATION = "validation"
LOCK = "freeze.lock"


def _is_own(name: str) -> bool:
    return name in (MANIFEST, MANIFEST + TEMPORARY_SUFFIX, LOCK) or name.startswith(RECORDS)


FROZEN_DIRECTORY = DirectoryKind(
    "frozen data set",
    MANIFEST,
    lambda name: name == VALIDATION or _is_own(name.removeprefix(f"{VALIDATION}/")),
)
_INTEGER = re.compile("-?[0-9]{1,19}")


@dataclass(frozen=True)
class Frozen:
    """A frozen data set. `root` is the data root of COMMITMENTS 8.3, or 8.6.4 for long records.

    `source` and `rules` say where the records come from and what was done to them. `ranges` has the
    least and the greatest value of each i64 and i32 field: of classes and tokens.
    """

    directory: Path
    schema: DataSchema
    count: int
    root: bytes
    source: dict[str, JsonValue]
    rules: dict[str, JsonValue]
    ranges: dict[str, tuple[int, int]]

    @property
    def file(self) -> Path:
        """The records' file."""
        return self.directory / RECORDS

    @property
    def nbytes(self) -> int:
        """Bytes of all records."""
        return self.count * self.schema.record_size

    @property
    def disk_bytes(self) -> int:
        """Bytes of the records' file."""
        return size_of(self.file, "data file", self.directory)

    @cached_property
    def columns(self) -> dict[str, Array]:
        """The records, memory-mapped: one array (N, *field shape) for each field; not hashed."""
        return read_tensors(self.file, "data file", check=self._check, inside=self.directory)[0]

    @cached_property
    def validation(self) -> Frozen | None:
        """The records that were held out, if any."""
        below = self.directory / VALIDATION
        return load_frozen(below) if present(below / MANIFEST) else None

    def verify(self) -> None:
        """Hash every record, a few MiB at a time. Raises DigestMismatchError unless the root is the
        manifest's, CorruptFileError, StorageError."""
        found = stream_file(self.file, self.schema, self.count, self._check, self.directory)
        if found.root() != self.root:
            raise DigestMismatchError(
                f"{self.file} is not what its manifest names: it was altered.",
                "Restore it from an intact copy, or freeze the data again.",
            )

    def _check(self, types: FileTypes, metadata: Mapping[str, str]) -> None:
        check_columns(self.file, self.schema, self.count, types, metadata)

    def manifest(self) -> Manifest:
        """The content of data.json."""
        return {
            "format": FORMAT,
            "ranges": {name: [str(n) for n in ends] for name, ends in self.ranges.items()},
            "records": self.count,
            "root": self.root.hex(),
            "rules": self.rules,
            "schema": schema_members(self.schema),
            "source": self.source,
        }


def check_columns(
    path: Path, schema: DataSchema, count: int, types: FileTypes, metadata: Mapping[str, str]
) -> None:
    """Raise CorruptFileError unless a header says exactly `count` records of `schema`."""
    wanted = {f.name: (f.dtype, (count, *f.shape)) for f in schema.fields}
    if metadata or types != wanted:
        raise CorruptFileError(
            f"The data file {path} does not have the job's fields and number of records.",
            "Restore it from an intact copy.",
        )


def _malformed(path: Path, why: str) -> NoReturn:
    raise CorruptFileError(f"The manifest {path} is malformed: {why}.", "Freeze the data again.")


def is_frozen(path: Path) -> bool:
    """True if `path` is the directory of a frozen data set. Raises StorageError."""
    return is_directory(path) and present(path / MANIFEST)


def load_frozen(directory: Path | str) -> Frozen:
    """The frozen data set at `directory`; its manifest is checked, its records are not.

    Raises UsageError where there is none, StorageError, CorruptFileError, DigestMismatchError.
    """
    path = Path(directory) / MANIFEST
    if not present(path):
        raise UsageError(
            f"{directory} is not a frozen data set: it has no {MANIFEST}.",
            "Make one with `tallystick data freeze`.",
        )
    content = load_manifest(path, "data manifest", FORMAT)
    top = Members(content, partial(_malformed, path))
    top.only("format", "ranges", "records", "root", "rules", "schema", "source")
    count = top.of("records", int)
    if not 1 <= count <= LIMITS.records:
        top.fail("its number of records is impossible")
    try:
        schema = read_schema(top, top.of("schema", list), LIMITS.long_record_bytes)
    except UsageError as error:
        top.fail(error.message)
    source, rules = top.child("source").value, top.child("rules").value
    ranges = {name: _range(top, ends) for name, ends in top.child("ranges").value.items()}
    return Frozen(Path(directory), schema, count, top.hex("root"), source, rules, ranges)


def _range(top: Members, ends: JsonValue) -> tuple[int, int]:
    match ends:
        case [str(low), str(high)] if _INTEGER.fullmatch(low) and _INTEGER.fullmatch(high):
            return int(low), int(high)
    top.fail("a range is malformed")
