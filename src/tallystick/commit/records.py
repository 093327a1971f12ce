"""Records of a job of format 2: parts of a record, and data roots over long records (COMMITMENTS
8.6).

A record of at most `LIMITS.record_bytes` is one part, and its data root is that of 8.3. A longer
one is cut, so that one element of it can be shown in an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tallystick.commit import _native, merkle
from tallystick.commit.data import (
    DataSchema,
    Field,
    HashScratch,
    RecordProof,
    data_root_of,
    record_leaf_hashes,
)
from tallystick.commit.encoding import HASH_BYTES, Writer, tag
from tallystick.commit.tensor import DTYPES, Array, canonical_array, check_canonical
from tallystick.errors import CorruptFileError, DigestMismatchError
from tallystick.limits import LIMITS


class DataTree(Protocol):
    """The tree over all records: `merkle.Tree`, or one that keeps less (commit/streamed.py)."""

    def inclusion(self, index: int) -> list[bytes]:
        """The audit path of record `index`."""


RECORD_TAG = tag("record/2")
LONG_DATA_TAG = tag("data/2")


def is_long(schema: DataSchema) -> bool:
    """True if a record is cut into parts (COMMITMENTS 8.6.1)."""
    return schema.record_size > LIMITS.record_bytes


@dataclass(frozen=True)
class ValuePlace:
    """Where a value of a record stands: its part, and the byte in the part."""

    part: int
    offset: int


def place_of(schema: DataSchema, field: Field, element: int) -> ValuePlace:
    """The place of element `element` of `field` in a record (8.6.2)."""
    before = schema.fields[: schema.fields.index(field)]
    at = element * field.header.itemsize
    if not is_long(schema):
        return ValuePlace(0, sum(f.header.nbytes for f in before) + at)
    part, offset = divmod(at, LIMITS.record_part_bytes)
    return ValuePlace(sum(_parts_of(f) for f in before) + part, offset)


def _parts_of(field: Field) -> int:
    return -(-field.header.nbytes // LIMITS.record_part_bytes)


def part_count(schema: DataSchema) -> int:
    """The number of parts of a record (8.6.2)."""
    return sum(_parts_of(f) for f in schema.fields) if is_long(schema) else 1


def part_bytes(schema: DataSchema, part: int) -> int:
    """The bytes of part `part` of a record (8.6.2)."""
    if not is_long(schema):
        return schema.record_size
    return list(_values_of_parts(schema))[part][1]


def _values_of_parts(schema: DataSchema) -> Iterator[tuple[Field, int]]:
    """The field and the bytes of each part of a long record."""
    size = LIMITS.record_part_bytes
    for f in schema.fields:
        for at in range(0, f.header.nbytes, size):
            yield f, min(size, f.header.nbytes - at)


def parts(schema: DataSchema, values: Mapping[str, Array]) -> list[bytes]:
    """The parts of a long record (8.6.2)."""
    cut, size = [], LIMITS.record_part_bytes
    for f in schema.fields:
        data = canonical_array(values[f.name]).tobytes()
        cut += [data[at : at + size] for at in range(0, len(data), size)]
    return cut


def _digest(count: int, root: bytes) -> bytes:
    return Writer(RECORD_TAG).u64(count).hash(root, "record's root").digest()


def _tree(schema: DataSchema, values: Mapping[str, Array]) -> merkle.Tree:
    return merkle.Tree(b"".join(merkle.leaf_hash(part) for part in parts(schema, values)))


def leaf_hashes(
    schema: DataSchema, columns: Mapping[str, Array], scratch: HashScratch | None = None
) -> bytes:
    """The leaf hash of every record in the data's tree, 32 bytes each (8.3, 8.6.3)."""
    if not is_long(schema):
        return record_leaf_hashes(schema, columns, scratch)
    out = []
    for index in range(len(next(iter(columns.values())))):
        # A part of a field is what the native core calls a leaf of it.
        cut = b"".join(
            _native.leaf_hashes(canonical_array(columns[f.name][index]), LIMITS.record_part_bytes)
            for f in schema.fields
            if f.header.nbytes
        )
        count = len(cut) // HASH_BYTES
        out.append(merkle.leaf_hash(_digest(count, _native.root_of_hashes(cut))))
    return b"".join(out)


def root_of(schema: DataSchema, count: int, tree_root: bytes) -> bytes:
    """The data root over `count` records under `tree_root` (8.3, 8.6.4)."""
    if not is_long(schema):
        return data_root_of(schema, count, tree_root)
    out = Writer(LONG_DATA_TAG).hash(schema.digest()).u64(count)
    return out.hash(tree_root, "record tree root").digest()


def records_root(schema: DataSchema, columns: Mapping[str, Array]) -> bytes:
    """The data root of the records in `columns`, one array (N, *field shape) for each field."""
    hashes = leaf_hashes(schema, columns)
    return root_of(schema, len(hashes) // HASH_BYTES, _native.root_of_hashes(hashes))


@dataclass(frozen=True)
class PartProof:
    """One part of a record, its proof in the record, and the record's in the data. Untrusted until
    `value` returns."""

    data: bytes
    inner: tuple[bytes, ...]
    path: tuple[bytes, ...]

    def value(
        self, schema: DataSchema, count: int, root: bytes, index: int, field: Field, element: int
    ) -> np.generic:
        """Element `element` of `field` of record `index` of `count` under the data root `root`.

        Raises CounterpartyError: CorruptFileError for a wrong length, DigestMismatchError for a
        wrong proof.
        """
        at = place_of(schema, field, element)
        if not is_long(schema):
            proof = RecordProof(self.data, index, self.path)
            if self.inner:
                raise CorruptFileError("A whole record needs no proof in it.", "Refuse it.")
            found = proof.verify(schema, count, root, index)[field.name]
            whole: np.generic = found.reshape(-1)[element]
            return whole
        held, size = list(_values_of_parts(schema))[at.part]
        if len(self.data) != size:
            raise CorruptFileError(
                f"Part {at.part} of a record has {len(self.data)} bytes, not {size}.", "Refuse it."
            )
        inside = part_count(schema)
        leaf = merkle.leaf_hash(self.data)
        record = merkle.inclusion_root(leaf, at.part, inside, self.inner)
        if record is not None:
            leaf = merkle.leaf_hash(_digest(inside, record))
            tree = merkle.inclusion_root(leaf, index, count, self.path)
            if tree is not None and root_of(schema, count, tree) == root:
                array = np.frombuffer(self.data, dtype=DTYPES[held.dtype])
                check_canonical(array, f"record field {held.name!r}")
                value: np.generic = array[at.offset // held.header.itemsize]
                return value
        raise DigestMismatchError(
            f"The part offered of record {index} is not the job's.", "Refuse it."
        )


def prove_part(
    schema: DataSchema, values: Mapping[str, Array], tree: DataTree, index: int, part: int
) -> PartProof:
    """The proof of part `part` of record `index`, which has `values`, in the data's `tree`."""
    path = tuple(tree.inclusion(index))
    if not is_long(schema):
        whole = b"".join(canonical_array(values[f.name]).tobytes() for f in schema.fields)
        return PartProof(whole, (), path)
    inner = tuple(_tree(schema, values).inclusion(part))
    return PartProof(parts(schema, values)[part], inner, path)
