"""RFC 9162 Merkle trees: roots, inclusion, consistency and multi-leaf proofs (COMMITMENTS 2).

A proof binds the leaf's index and the tree's size. Both are the verifier's own arguments, never
taken from the proof. Verifiers return a bool for a well-formed but wrong proof. A hash of another
length than 32 bytes proves nothing (COMMITMENTS 2.8).
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from tallystick.commit.encoding import HASH_BYTES
from tallystick.errors import UsageError

EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(data: bytes | memoryview) -> bytes:
    """SHA256(0x00 || data) (COMMITMENTS 2.1)."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA256(0x01 || left || right) (COMMITMENTS 2.2)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def _split(n: int) -> int:
    """The largest power of two smaller than n, for n >= 2 (COMMITMENTS 2.3)."""
    return 1 << (n - 1).bit_length() - 1


class Tree:
    """A tree over leaf hashes in memory. It keeps every level, so proofs cost O(log n).

    `hashes` is a sequence of 32-byte leaf hashes, or their concatenation.
    """

    def __init__(self, hashes: Sequence[bytes] | bytes) -> None:
        if isinstance(hashes, bytes):
            level = [hashes[i : i + HASH_BYTES] for i in range(0, len(hashes), HASH_BYTES)]
        else:
            level = list(hashes)
        if any(len(h) != HASH_BYTES for h in level):
            raise UsageError("Leaf hashes must be 32 bytes each.", "Hash the leaves first.")
        self.size = len(level)
        self._levels = [level]
        while len(level) > 1:
            above = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
            if len(level) % 2:
                above.append(level[-1])
            self._levels.append(above)
            level = above

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` leaves; all by default (COMMITMENTS 2.3)."""
        n = self.size if size is None else size
        if not 0 <= n <= self.size:
            raise UsageError(f"The tree has {self.size} leaves, not {n}.", "Ask for a prefix.")
        return self._range(0, n) if n else EMPTY_ROOT

    def _range(self, start: int, stop: int) -> bytes:
        """Root over leaves [start, stop): a stored node, or made of its halves' roots."""
        n = stop - start
        level = (n - 1).bit_length()
        aligned = start % (1 << level) == 0
        if aligned and (n == 1 << level or stop == self.size):
            return self._levels[level][start >> level]
        k = _split(n)
        return node_hash(self._range(start, start + k), self._range(start + k, stop))

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Audit path of leaf `index` in the tree over the first `size` leaves (COMMITMENTS 2.5)."""
        n = self.size if size is None else size
        if not 0 <= index < n <= self.size:
            raise UsageError(f"No leaf {index} in a tree of {n}.", "Ask for a leaf that exists.")
        path: list[bytes] = []
        start, stop = 0, n
        while stop - start > 1:
            middle = start + _split(stop - start)
            if index < middle:
                path.append(self._range(middle, stop))
                stop = middle
            else:
                path.append(self._range(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, old: int, size: int | None = None) -> list[bytes]:
        """Proof that the first `old` leaves are a prefix of the first `size` (COMMITMENTS 2.6)."""
        n = self.size if size is None else size
        if not 0 <= old <= n <= self.size:
            raise UsageError(f"No prefix of {old} in a tree of {n}.", "Ask for a shorter prefix.")
        if old in (0, n):
            return []
        path: list[bytes] = []
        start, stop, whole = 0, n, True
        while old != stop:
            middle = start + _split(stop - start)
            if old <= middle:
                path.append(self._range(middle, stop))
                stop = middle
            else:
                path.append(self._range(start, middle))
                start, whole = middle, False
        if not whole:
            path.append(self._range(start, stop))
        return path[::-1]

    def parts(self, first: int, count: int, depth: int) -> list[bytes]:
        """Hashes of the parts of a range that is a subtree of this tree (PROTOCOL 2.4)."""
        return [self._range(at, at + n) for at, n in parts_of(first, count, depth)]

    def multi(self, indices: Sequence[int]) -> list[bytes]:
        """Hashes that, with the leaves at sorted distinct `indices`, give the root, in the order
        of the verifier's walk from left to right (COMMITMENTS 2.7)."""
        return [self._range(start, stop) for start, stop in multi_ranges(indices, self.size)]


def root(hashes: Sequence[bytes] | bytes) -> bytes:
    """RFC 9162 root over leaf hashes; SHA256("") over none (COMMITMENTS 2.3)."""
    return Tree(hashes).root()


def inclusion_root(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes | None:
    """The root that leaf hash `leaf`, as leaf `index` of `size`, and `proof` give, or None.

    RFC 9162 2.1.3.2. The proof must have exactly the length that index and size demand.
    """
    if not 0 <= index < size or not _hashes(leaf):
        return None
    fn, sn, result = index, size - 1, leaf
    for sibling in proof:
        if sn == 0 or len(sibling) != HASH_BYTES:
            return None
        if fn & 1 or fn == sn:
            result = node_hash(sibling, result)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            result = node_hash(result, sibling)
        fn, sn = fn >> 1, sn >> 1
    return result if sn == 0 else None


def verify_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """True if leaf hash `leaf` is leaf `index` of the tree of `size` leaves under `root`."""
    return inclusion_root(leaf, index, size, proof) == root


def verify_consistency(
    old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """True if the tree of `old` leaves is a prefix of the tree of `new` (RFC 9162 2.1.4.2).

    An empty old tree is a prefix of every tree, with an empty proof (COMMITMENTS 2.6).
    """
    if not 0 <= old <= new or not _hashes(old_root, new_root, *proof):
        return False
    if old == 0 and old_root != EMPTY_ROOT:
        return False
    if old == new:
        return not proof and old_root == new_root
    if old == 0:
        return not proof
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        return False
    fn, sn = old - 1, new - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = node_hash(c, fr), node_hash(c, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node_hash(sr, c)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == old_root and sr == new_root


def multi_root(leaves: Mapping[int, bytes], size: int, proof: Sequence[bytes]) -> bytes | None:
    """The root that the leaf hashes `leaves` (index -> hash) and `proof` give, or None.

    None if they do not fit a tree of `size` leaves: the walk must use every proof hash, in order,
    and none may be missing (COMMITMENTS 2.7).
    """
    wanted = sorted(leaves)
    if not wanted or wanted[0] < 0 or wanted[-1] >= size:
        return None
    if not _hashes(*proof, *leaves.values()):
        return None
    rest = iter(proof)

    def visit(start: int, stop: int, inside: Sequence[int]) -> bytes | None:
        if not inside:
            return next(rest, None)
        if stop - start == 1:
            return leaves[start]
        middle = start + _split(stop - start)
        cut = bisect_left(inside, middle)
        left = visit(start, middle, inside[:cut])
        right = visit(middle, stop, inside[cut:]) if left is not None else None
        return None if left is None or right is None else node_hash(left, right)

    result = visit(0, size, wanted)
    return result if next(rest, None) is None else None


def verify_multi(
    leaves: Mapping[int, bytes], size: int, proof: Sequence[bytes], root: bytes
) -> bool:
    """True if the leaf hashes `leaves` lie in the tree of `size` leaves under `root`."""
    return multi_root(leaves, size, proof) == root


def multi_proof_length(indices: Sequence[int], size: int) -> int:
    """The number of hashes of `Tree.multi`, without a tree: for bounds and cost tables."""
    return len(multi_ranges(indices, size))


def multi_ranges(indices: Sequence[int], size: int) -> list[tuple[int, int]]:
    """The leaves [start, stop) under each hash that `Tree.multi` gives, in its order (2.7)."""
    _check_indices(indices, size)
    return list(_ranges(0, size, indices))


def _ranges(start: int, stop: int, wanted: Sequence[int]) -> Iterator[tuple[int, int]]:
    if not wanted:
        yield start, stop
    elif stop - start > 1:
        middle = start + _split(stop - start)
        cut = bisect_left(wanted, middle)
        yield from _ranges(start, middle, wanted[:cut])
        yield from _ranges(middle, stop, wanted[cut:])


def parts_of(first: int, count: int, depth: int) -> list[tuple[int, int]]:
    """The parts (first leaf, leaves) of a range that is split `depth` times (PROTOCOL 2.4)."""
    if depth == 0 or count == 1:
        return [(first, count)]
    k = _split(count)
    return parts_of(first, k, depth - 1) + parts_of(first + k, count - k, depth - 1)


def combine_parts(count: int, depth: int, hashes: Sequence[bytes]) -> bytes | None:
    """The hash of a range of `count` leaves from its parts' hashes; None for a wrong number."""
    given = list(reversed(hashes))

    def visit(leaves: int, left: int) -> bytes:
        if left == 0 or leaves == 1:
            return given.pop()
        k = _split(leaves)
        a = visit(k, left - 1)
        return node_hash(a, visit(leaves - k, left - 1))

    if len(hashes) != len(parts_of(0, count, depth)) or not _hashes(*hashes):
        return None
    return visit(count, depth)


def _hashes(*values: bytes) -> bool:
    """True if each of `values` has the length of a hash (COMMITMENTS 2.8)."""
    return all(len(value) == HASH_BYTES for value in values)


def _check_indices(indices: Sequence[int], size: int) -> None:
    if (
        not indices
        or indices[0] < 0
        or indices[-1] >= size
        or any(a >= b for a, b in itertools.pairwise(indices))
    ):
        raise UsageError(
            f"Leaf indices must be sorted, distinct and below {size}.", "Sort them first."
        )
