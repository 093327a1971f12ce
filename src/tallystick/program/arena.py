"""Offsets in one block of memory for buffers with known lifetimes: greedy, largest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tallystick.devices.device import ALIGNMENT as ALIGNMENT


@dataclass(frozen=True)
class Span:
    """A buffer of `nbytes`, live in the execution positions first..last inclusive."""

    nbytes: int
    first: int
    last: int


def pack(spans: Sequence[Span]) -> tuple[list[int], int]:
    """An offset for each span, such that spans alive together do not overlap; and the total size.

    The function places the largest span first, and each into the tightest gap that is free for its
    whole life. Offsets are multiples of `ALIGNMENT`.
    """
    sizes = np.array([-(-s.nbytes // ALIGNMENT) * ALIGNMENT for s in spans], dtype=np.int64)
    first = np.array([s.first for s in spans], dtype=np.int64)
    last = np.array([s.last for s in spans], dtype=np.int64)
    order = sorted(range(len(spans)), key=lambda i: (-int(sizes[i]), int(first[i])))
    first, last = first[order], last[order]
    placed = np.zeros(len(spans), dtype=np.int64)
    sorted_sizes = sizes[order] if len(spans) else sizes
    for i in range(len(spans)):
        alive = (first[:i] <= last[i]) & (last[:i] >= first[i])
        placed[i] = _tightest(placed[:i][alive], sorted_sizes[:i][alive], int(sorted_sizes[i]))
    offsets = [0] * len(spans)
    for i, original in enumerate(order):
        offsets[original] = int(placed[i])
    total = int((placed + sorted_sizes).max()) if len(spans) else 0
    return offsets, total


def _tightest(starts: np.ndarray, sizes: np.ndarray, wanted: int) -> int:
    """The offset of the smallest gap of at least `wanted` bytes, or the end of all buffers."""
    if wanted == 0 or not starts.size:
        return 0
    by_start = np.argsort(starts, kind="stable")
    starts, ends = starts[by_start], (starts + sizes)[by_start]
    reached = np.concatenate(([0], np.maximum.accumulate(ends)))
    gaps = starts - reached[:-1]
    fits = np.flatnonzero(gaps >= wanted)
    if not fits.size:
        return int(reached[-1])
    return int(reached[:-1][fits[np.argmin(gaps[fits])]])


def lower_bound(spans: Sequence[Span]) -> int:
    """The bytes alive at the worst position. No packing needs fewer (before alignment)."""
    if not spans:
        return 0
    change = np.zeros(max(s.last for s in spans) + 2, dtype=np.int64)
    for span in spans:
        change[span.first] += span.nbytes
        change[span.last + 1] -= span.nbytes
    return int(np.cumsum(change).max())
