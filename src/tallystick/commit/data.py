"""The data commitment: records under a Merkle tree (COMMITMENTS 8), and their schema in a manifest.
Their order is in order.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tallystick.commit import _native, merkle
from tallystick.commit.encoding import JsonValue, Writer, encode_name, tag
from tallystick.commit.members import Members
from tallystick.commit.order import batch_indices as batch_indices
from tallystick.commit.tensor import (
    COMPUTED,
    DTYPES,
    STORED,
    Array,
    TensorHeader,
    canonical_array,
    check_canonical,
    dtype_name,
)
from tallystick.errors import CorruptFileError, DigestMismatchError, UsageError
from tallystick.limits import LIMITS

SCHEMA_TAG = tag("schema/1")
DATA_TAG = tag("data/1")

BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Field:
    """One field of every record: name, dtype name, and the shape of one record's value."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def header(self) -> TensorHeader:
        return TensorHeader(self.dtype, self.shape)


@dataclass(frozen=True)
class DataSchema:
    """The fields of a record, kept in the order of their names' UTF-8 bytes (COMMITMENTS 8.1).

    Raises UsageError for a repeated name, a dtype that records lack (8.1), an empty record, or a
    record over the limit.
    """

    fields: tuple[Field, ...]
    most_bytes: int = field(default=LIMITS.record_bytes, compare=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.fields, key=lambda f: encode_name(f.name)))
        object.__setattr__(self, "fields", ordered)
        names = [f.name for f in ordered]
        if len(names) > LIMITS.record_fields or len(set(names)) != len(names):
            raise UsageError("Record fields repeat a name or are too many.", "Rename or merge.")
        if any(f.dtype in STORED for f in ordered):
            raise UsageError("A record has no field of bf16 or f16.", "Convert it to f32.")
        if not 1 <= self.record_size <= self.most_bytes:
            raise UsageError(
                f"A record of {self.record_size} bytes is not allowed.",
                f"Use 1 to {self.most_bytes} bytes per record.",
            )

    @property
    def record_size(self) -> int:
        """Bytes in one record."""
        return sum(f.header.nbytes for f in self.fields)

    def digest(self) -> bytes:
        """The schema digest (COMMITMENTS 8.2)."""
        out = Writer(SCHEMA_TAG).u64(len(self.fields))
        for f in self.fields:
            f.header.write(out.text(f.name))
        return out.digest()


def record_bytes(schema: DataSchema, values: Mapping[str, Array]) -> bytes:
    """One record: the canonical bytes of its fields in schema order (COMMITMENTS 8.1).

    `values` maps each field name to an array of exactly the field's dtype and shape.
    """
    _check_names(schema, values)
    parts = []
    for f in schema.fields:
        array = values[f.name]
        if dtype_name(array.dtype) != f.dtype or tuple(array.shape) != f.shape:
            raise UsageError(
                f"Field {f.name!r} is {array.dtype} {tuple(array.shape)}, "
                f"the schema says {f.dtype} {f.shape}.",
                "Convert it.",
            )
        parts.append(canonical_array(array).tobytes())
    return b"".join(parts)


def parse_record(schema: DataSchema, data: bytes) -> dict[str, Array]:
    """Inverse of record_bytes for untrusted bytes: name -> array, checked to be canonical.

    Raises CorruptFileError for a wrong size, CounterpartyError for non-canonical values.
    """
    if len(data) != schema.record_size:
        raise CorruptFileError(
            f"A record has {len(data)} bytes, the schema says {schema.record_size}.",
            "Ask its sender for an intact copy.",
        )
    values: dict[str, Array] = {}
    at = 0
    for f in schema.fields:
        size = f.header.nbytes
        array = np.frombuffer(data[at : at + size], dtype=DTYPES[f.dtype]).reshape(f.shape)
        check_canonical(array, f"record field {f.name!r}")
        values[f.name] = array
        at += size
    return values


def _check_names(schema: DataSchema, values: Mapping[str, object]) -> None:
    names = {f.name for f in schema.fields}
    if set(values) != names:
        raise UsageError(
            f"The fields are {sorted(values)}, the schema has {sorted(names)}.", "Match them."
        )


class HashScratch:
    """Memory that many calls use: new pages for every block cost as much as hashing it."""

    def __init__(self) -> None:
        self._held = np.empty(0, dtype=np.uint8)

    def rows(self, count: int, size: int) -> npt.NDArray[np.uint8]:
        """u8[count, size] of any content; good until the next call."""
        if self._held.size < count * size:
            self._held = np.empty(count * size, dtype=np.uint8)
        return self._held[: count * size].reshape(count, size)


def record_leaf_hashes(
    schema: DataSchema, columns: Mapping[str, Array], scratch: HashScratch | None = None
) -> bytes:
    """Leaf hashes of all records, 32 bytes each (COMMITMENTS 8.3).

    `columns` maps each field name to an array of shape (N, *field shape), memory-mapped or not.
    The function assembles records a few MiB at a time, in `scratch` where one is kept.
    """
    _check_names(schema, columns)
    count = _count(schema, columns)
    size = schema.record_size
    per_block = max(1, BLOCK_BYTES // size)
    out = []
    rows = (scratch or HashScratch()).rows(min(count, per_block), size)
    for start in range(0, count, per_block):
        stop = min(count, start + per_block)
        block = rows[: stop - start]
        at = 0
        for f in schema.fields:
            width = f.header.nbytes
            if width:
                part = canonical_array(columns[f.name][start:stop])
                block[:, at : at + width] = part.reshape(stop - start, -1).view(np.uint8)
            at += width
        out.append(_native.leaf_hashes(block, size))
    return b"".join(out)


def _count(schema: DataSchema, columns: Mapping[str, Array]) -> int:
    counts = set()
    for f in schema.fields:
        column = columns[f.name]
        shape = tuple(int(d) for d in column.shape)
        if dtype_name(column.dtype) != f.dtype or shape[1:] != f.shape or not shape:
            raise UsageError(
                f"Column {f.name!r} is {column.dtype} {shape}, "
                f"the schema says {f.dtype} (N, *{f.shape}).",
                "Convert it.",
            )
        counts.add(shape[0])
    if len(counts) != 1:
        raise UsageError(f"Columns have different lengths: {sorted(counts)}.", "Trim them.")
    count = counts.pop()
    if count > LIMITS.records:
        raise UsageError(f"{count} records exceed {LIMITS.records}.", "Split the data.")
    return count


def data_root_of(schema: DataSchema, count: int, tree_root: bytes) -> bytes:
    """The data root over `count` records under `tree_root` (COMMITMENTS 8.3)."""
    out = Writer(DATA_TAG).hash(schema.digest()).u64(count)
    return out.hash(tree_root, "record tree root").digest()


def data_root(schema: DataSchema, columns: Mapping[str, Array]) -> bytes:
    """The data root of N records given by columns; binds schema, N and each record (8.3)."""
    hashes = record_leaf_hashes(schema, columns)
    return data_root_of(schema, len(hashes) // 32, _native.root_of_hashes(hashes))


@dataclass(frozen=True)
class RecordProof:
    """One record and its inclusion proof (COMMITMENTS 8.3). Untrusted until verify returns."""

    record: bytes
    index: int
    path: tuple[bytes, ...]

    def verify(self, schema: DataSchema, count: int, root: bytes, index: int) -> dict[str, Array]:
        """The fields of record `index` of `count` under the data root `root`.

        Raises CounterpartyError (DigestMismatchError for a wrong proof). The verifier takes all
        arguments from its own job and from batch_indices.
        """
        leaf = merkle.leaf_hash(self.record)
        tree_root = merkle.inclusion_root(leaf, index, count, self.path)
        if (
            self.index != index
            or tree_root is None
            or data_root_of(schema, count, tree_root) != root
        ):
            raise DigestMismatchError(
                f"The record offered as number {index} is not the job's.", "Refuse it."
            )
        return parse_record(schema, self.record)


def prove_record(record: bytes, hashes: bytes | Sequence[bytes], index: int) -> RecordProof:
    """The proof of record `index` with the bytes `record`, from all leaf hashes of the data."""
    return RecordProof(record, index, tuple(merkle.Tree(hashes).inclusion(index)))


def batch_columns(columns: Mapping[str, Array], indices: npt.NDArray[np.int64]) -> dict[str, Array]:
    """The batch tensors: name -> array of shape (batch, *field shape), C order."""
    return {name: np.ascontiguousarray(column[indices]) for name, column in columns.items()}


def schema_members(schema: DataSchema) -> list[JsonValue]:
    """The fields, in their order."""
    return [{"dtype": f.dtype, "name": f.name, "shape": list(f.shape)} for f in schema.fields]


def read_schema(top: Members, items: Sequence[JsonValue], most: int) -> DataSchema:
    """The schema in an untrusted manifest, with records of at most `most` bytes. Raises
    CorruptFileError, UsageError."""
    fields = []
    for item in items:
        entry = Members(item, top.fail)
        entry.only("dtype", "name", "shape")
        shape, dtype = entry.of("shape", list), entry.of("dtype", str)
        sides = tuple(d for d in shape if type(d) is int)
        if len(sides) != len(shape) or dtype not in COMPUTED:
            entry.fail("a field of the schema is malformed")
        fields.append(Field(entry.of("name", str), dtype, sides))
    return DataSchema(tuple(fields), most)
