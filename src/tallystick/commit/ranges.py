"""The digest of a tensor whose ranges several workers have (COMMITMENTS 2.3, 3.4, 3.5).

Each worker hashes the largest subtrees of the tree that lie in its consecutive leaves. The root
follows from these hashes of all ranges, without a byte of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tallystick.commit import _native, merkle
from tallystick.commit.split import joined, subtrees
from tallystick.commit.tensor import LEAF_BYTES, Array


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
