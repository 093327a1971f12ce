"""How micro-batches fall on workers, and the partial sums that these send (COMMITMENTS 2.3)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tallystick.numerics.operators.reduction import split


def share(parts: int, workers: int, rank: int) -> tuple[int, int]:
    """The micro-batches [first, last) of a rank: consecutive, and as even as can be."""
    return parts * rank // workers, parts * (rank + 1) // workers


def trees(parts: int, workers: int) -> list[tuple[int, int, int]]:
    """The shares of a step, in order: (rank, first micro-batch, number of them). A rank has one for
    each subtree of the fold that its micro-batches make up."""
    found = []
    for rank in range(workers):
        first, last = share(parts, workers, rank)
        starts = [*_cover(0, parts, first, last), last]
        found += [(rank, a, b - a) for a, b in pairwise(starts)]
    return found


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


@lru_cache(1 << 14)
def _counts(parts: int, workers: int) -> tuple[int, float]:
    """The most and the mean of the ranks' numbers of subtrees. All ranks at once: a subtree that
    does not end at `parts` is an aligned block of a power of two."""
    ranks = np.arange(workers - 1)
    first, last = parts * ranks // workers, parts * (ranks + 1) // workers
    count = np.zeros(workers, np.int64)
    count[-1] = subtrees(parts, *share(parts, workers, workers - 1))
    while np.any(first < last):
        inside = first < last
        count[:-1] += inside & (first % 2 == 1)
        count[:-1] += inside & (last % 2 == 1)
        first, last = (first + 1) // 2, last // 2
    return int(count.max()), float(count.mean())


def most_subtrees(parts: int, workers: int) -> int:
    """Of the rank that sends most."""
    return _counts(parts, workers)[0]


def mean_subtrees(parts: int, workers: int) -> float:
    """Over the ranks."""
    return _counts(parts, workers)[1]


@lru_cache(1 << 14)
def largest_share(tensors: tuple[tuple[int, int], ...], workers: int) -> int:
    """Bytes of the owner with most, where a tensor has one owner: the largest first, each to who
    has least so far (program/owners.py). `tensors`: sizes, the largest first, and their numbers."""
    loads = [0] * workers
    for size, count in tensors:
        for _ in range(count):
            heapq.heapreplace(loads, loads[0] + size)
    return max(loads)
