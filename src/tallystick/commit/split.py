"""The split of COMMITMENTS 2.3 among workers with consecutive parts of it: leaves of a tree, or
micro-batches of a sum. Each worker has the largest subtrees that lie in its range. These give the
whole: of a tensor its digest, without a byte of it (3.4, 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tallystick.commit import _native, merkle
from tallystick.commit.tensor import LEAF_BYTES, Array

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
