"""The digest of a tensor whose ranges several workers have (COMMITMENTS 2.3, 3.4, 3.5).

Who has some consecutive leaves hashes the largest subtrees of the tree that lie in them. From these
hashes of all ranges anyone has the root, without a byte of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tallystick.commit import _native, merkle
from tallystick.commit.tensor import LEAF_BYTES, Array


def subtrees_of(start: int, stop: int) -> list[tuple[int, int]]:
    """(level, first leaf) of the largest subtrees, of 2^level leaves each, that lie in the leaves
    [start, stop) of a tree, in order."""
    found: list[tuple[int, int]] = []
    while start < stop:
        level = (stop - start).bit_length() - 1
        if start:
            level = min(level, (start & -start).bit_length() - 1)
        found.append((level, start))
        start += 1 << level
    return found


def range_roots(data: Array, first: int) -> list[bytes]:
    """The hash of each of `subtrees_of` the leaves that begin with leaf `first`. `data`, u8[n] and
    C-contiguous, are their bytes: whole leaves, but for the tensor's last one."""
    count = -(-data.nbytes // LEAF_BYTES)
    found = []
    for level, start in subtrees_of(first, first + count):
        at = (start - first) * LEAF_BYTES
        found.append(_native.leaves_root(data[at : at + (LEAF_BYTES << level)], LEAF_BYTES))
    return found


def joined_root(parts: Iterable[tuple[range, Sequence[bytes]]]) -> bytes:
    """The root over all leaves, from `range_roots` of consecutive ranges of them, from leaf 0 on.
    `parts` are (leaves, hashes)."""
    held: list[tuple[int, bytes]] = []
    for leaves, hashes in parts:
        trees = subtrees_of(leaves.start, leaves.stop)
        for (level, first), one in zip(trees, hashes, strict=True):
            made, at = one, level
            while first >> at & 1:
                made = merkle.node_hash(held.pop()[1], made)
                at += 1
            held.append((at, made))
    if not held:
        return merkle.EMPTY_ROOT
    root = held.pop()[1]
    while held:
        root = merkle.node_hash(held.pop()[1], root)
    return root
