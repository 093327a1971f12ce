"""How micro-batches fall on workers, and the partial sums that these send (COMMITMENTS 2.3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tallystick.numerics.operators.fold import split


def share(parts: int, workers: int, rank: int) -> tuple[int, int]:
    """The micro-batches [first, last) of a rank: consecutive, and as even as can be."""
    return parts * rank // workers, parts * (rank + 1) // workers


def subtrees(parts: int, first: int, last: int) -> int:
    """The subtrees of a fold of `parts` values that make up [first, last): so many partial sums
    of a parameter's gradient the rank sends, since others stand between them in the order."""
    return sum(1 for _ in _cover(0, parts, first, last))


def _cover(start: int, count: int, first: int, last: int) -> Iterator[int]:
    if start >= last or start + count <= first:
        return
    if first <= start and start + count <= last:
        yield start
        return
    left = split(count)
    yield from _cover(start, left, first, last)
    yield from _cover(start + left, count - left, first, last)


@lru_cache
def most_subtrees(parts: int, workers: int) -> int:
    """Of the rank that sends most."""
    return max(subtrees(parts, *share(parts, workers, rank)) for rank in range(workers))


@lru_cache
def mean_subtrees(parts: int, workers: int) -> float:
    """Over the ranks."""
    return sum(subtrees(parts, *share(parts, workers, r)) for r in range(workers)) / workers
