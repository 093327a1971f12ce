"""Trees in parts (COMMITMENTS 2.3): of leaves that pass once, in constant memory, or of leaves of
which workers have consecutive parts.

What passes by gives the data root over records (8.3), or the digest of a tensor (3.5). RFC 9162
cuts a tree at the largest power of two below its size. So whole subtrees of 2^k leaves can be
closed as they fill: one hash for each one bit of the number of leaves is all that is kept.

The parts of workers are leaves of a tree, or micro-batches of a sum. Each worker has the largest
subtrees that lie in its range. These give the whole: of a tensor its digest, without a byte of it
(3.4, 3.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tallystick.commit import _native, merkle
from tallystick.commit.data import DataSchema, HashScratch
from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.records import leaf_hashes, root_of
from tallystick.commit.tensor import LEAF_BYTES, Array, TensorHeader
from tallystick.errors import UsageError

Subtree = tuple[int, int]  # (level, first part), of 2^level parts
_Node = TypeVar("_Node")


def subtrees(parts: range) -> list[Subtree]:
    """The largest subtrees of the split that lie in consecutive parts, in order."""
    found: list[Subtree] = []
    start = parts.start
    while start < parts.stop:
        level = (parts.stop - start).bit_length() - 1
        if start:
            level = min(level, (start & -start).bit_length() - 1)
        found.append((level, start))
        start += 1 << level
    return found


def joined(
    given: Iterable[tuple[Subtree, _Node]], join: Callable[[_Node, _Node], _Node]
) -> _Node | None:
    """The node of the whole, from the nodes of `subtrees` in order, from part 0 on; None where
    there are none. `join(left, right)` makes the node above two."""
    held: list[tuple[int, _Node]] = []
    for (level, first), one in given:
        made, at = one, level
        while first >> at & 1:
            made = join(held.pop()[1], made)
            at += 1
        held.append((at, made))
    total: _Node | None = None
    while held:
        left = held.pop()[1]
        total = left if total is None else join(left, total)
    return total


def range_roots(data: Array, first: int) -> list[bytes]:
    """The hash of each of the `subtrees` of the leaves that begin with leaf `first`. `data`, u8[n]
    and C-contiguous, are their bytes: whole leaves, but for the tensor's last one."""
    count = -(-data.nbytes // LEAF_BYTES)
    found = []
    for level, start in subtrees(range(first, first + count)):
        at = (start - first) * LEAF_BYTES
        found.append(_native.leaves_root(data[at : at + (LEAF_BYTES << level)], LEAF_BYTES))
    return found


def joined_root(parts: Iterable[tuple[range, Sequence[bytes]]]) -> bytes:
    """The root over all leaves, from `range_roots` of consecutive ranges of them, from leaf 0 on.
    `parts` are (leaves, hashes)."""
    given = (one for leaves, hashes in parts for one in zip(subtrees(leaves), hashes, strict=True))
    root = joined(given, merkle.node_hash)
    return merkle.EMPTY_ROOT if root is None else root


# Leaves whose subtree the native core closes at once: 128 KiB of hashes.
_LEVEL = 12
_CHUNK = HASH_BYTES << _LEVEL
PROOF_BYTES = 16 << 20


class RootStream:
    """The root over leaf hashes that are added in order; `count` of them so far."""

    def __init__(self, keep: int | None = None) -> None:
        """With `keep`, at most 12, the root of every whole subtree of 2^keep leaves is kept."""
        self.count = 0
        self._keep = keep
        self._kept: list[bytes] = []
        self._rest = bytearray()
        self._closed: list[tuple[int, bytes]] = []  # level and root, levels descending

    def add(self, hashes: bytes) -> None:
        """Add leaf hashes, 32 bytes each."""
        self.count += len(hashes) // HASH_BYTES
        self._rest += hashes
        whole = len(self._rest) // _CHUNK * _CHUNK
        for at in range(0, whole, _CHUNK):
            chunk = bytes(self._rest[at : at + _CHUNK])
            self._kept += self._subtrees(chunk)
            self._close(_native.root_of_hashes(chunk))
        del self._rest[:whole]

    def _close(self, root: bytes) -> None:
        level = _LEVEL
        while self._closed and self._closed[-1][0] == level:
            root = merkle.node_hash(self._closed.pop()[1], root)
            level += 1
        self._closed.append((level, root))

    def _subtrees(self, hashes: bytes) -> list[bytes]:
        if self._keep is None:
            return []
        size = HASH_BYTES << self._keep
        starts = range(0, len(hashes), size)
        return [_native.root_of_hashes(hashes[at : at + size]) for at in starts]

    def subtrees(self) -> list[bytes]:
        """The kept roots, the last one of the leaves after the last whole subtree."""
        return [*self._kept, *self._subtrees(bytes(self._rest))]

    def root(self) -> bytes:
        """The root over all leaves added so far; SHA256("") over none."""
        closed = list(self._closed)
        if self._rest or not closed:
            result = _native.root_of_hashes(bytes(self._rest))
        else:
            result = closed.pop()[1]
        for _, left in reversed(closed):
            result = merkle.node_hash(left, result)
        return result


class RecordStream:
    """The data root of records of `schema` that come in blocks of columns."""

    def __init__(self, schema: DataSchema, keep: bool = False) -> None:
        """With `keep`, `tree` may follow."""
        self.schema = schema
        # Records of a proof are hashed again: some MiB of them, and never more than a chunk.
        self._level = min(_LEVEL, max(0, (PROOF_BYTES // schema.record_size).bit_length() - 1))
        self._leaves = RootStream(self._level if keep else None)
        self._scratch = HashScratch()

    @property
    def count(self) -> int:
        """Records so far."""
        return self._leaves.count

    def add(self, columns: Mapping[str, Array]) -> None:
        """Add the records of `columns`, one array (n, *field shape) for each field."""
        self._leaves.add(leaf_hashes(self.schema, columns, self._scratch))

    def root(self) -> bytes:
        """The data root over the records so far (COMMITMENTS 8.3, 8.6.4)."""
        return root_of(self.schema, self.count, self._leaves.root())

    def tree(self, columns: Mapping[str, Array]) -> RecordTree:
        """The tree over the records so far (with `keep`), which `columns` are to hold."""
        return RecordTree(self.schema, columns, self.count, self._leaves.subtrees(), self._level)


class RecordTree:
    """Inclusion proofs of records, from the roots of every 2^level records alone.

    A subtree of 2^level leaves is a leaf of the tree above it, because RFC 9162 cuts both at powers
    of two. The records of one subtree are hashed again when one of them is asked for.
    """

    def __init__(
        self,
        schema: DataSchema,
        columns: Mapping[str, Array],
        count: int,
        subtrees: Sequence[bytes],
        level: int,
    ) -> None:
        self._schema, self._columns, self.size, self._level = schema, columns, count, level
        self._above = merkle.Tree(subtrees)

    def inclusion(self, index: int) -> list[bytes]:
        """The audit path of record `index` (COMMITMENTS 2.5). Raises UsageError."""
        if not 0 <= index < self.size:
            raise UsageError(f"No record {index} of {self.size}.", "Ask for one that exists.")
        number = index >> self._level
        start, stop = number << self._level, (number + 1) << self._level
        rows = {name: column[start:stop] for name, column in self._columns.items()}
        below = merkle.Tree(leaf_hashes(self._schema, rows))
        return [*below.inclusion(index - start), *self._above.inclusion(number)]


class TensorStream:
    """The digest of a tensor with `header`. Its canonical bytes are added in order; it holds less
    than a leaf of them."""

    def __init__(self, header: TensorHeader) -> None:
        self.header, self.missing = header, header.nbytes
        self._root = RootStream()
        self._rest = b""

    def add(self, data: Array) -> None:
        """Add the next bytes, u8[n], at most as many as are missing."""
        self.missing -= data.nbytes
        assert self.missing >= 0, "more bytes than the tensor has"
        if self._rest:
            take = min(LEAF_BYTES - len(self._rest), data.nbytes)
            self._rest += data[:take].tobytes()
            data = data[take:]
            if len(self._rest) == LEAF_BYTES:
                self._root.add(_native.leaf_hashes(self._rest, LEAF_BYTES))
                self._rest = b""
        whole = data.nbytes // LEAF_BYTES * LEAF_BYTES
        if whole:
            self._root.add(_native.leaf_hashes(data[:whole], LEAF_BYTES))
        self._rest += data[whole:].tobytes()

    def digest(self) -> bytes:
        """The tensor digest, once no byte is missing."""
        assert not self.missing, "bytes are missing"
        if self._rest:
            self._root.add(_native.leaf_hashes(self._rest, LEAF_BYTES))
            self._rest = b""
        return self.header.digest(self._root.root())
