"""A tensor's digest from hashes of its ranges (COMMITMENTS 2.3, 3.5)."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.commit.streamed import joined_root, range_roots, subtrees
from tallystick.commit.tensor import LEAF_BYTES, header_of, tensor_digest

PER_LEAF = LEAF_BYTES // 4


@given(st.integers(0, 70 * PER_LEAF), st.lists(st.integers(0, 70), max_size=8))
@settings(max_examples=80, deadline=None)
def test_the_digest_of_any_ranges(count: int, cuts: list[int]) -> None:
    """Any cut between leaves, empty ranges and a short last leaf among them."""
    array = np.random.default_rng(count).standard_normal(count, dtype=np.float32)
    leaves = header_of(array).leaves
    at = [0, *sorted(min(c, leaves) for c in cuts), leaves]
    parts = []
    for start, stop in itertools.pairwise(at):
        data = array[start * PER_LEAF : stop * PER_LEAF].view(np.uint8)
        parts.append((range(start, stop), range_roots(data, start)))
    assert header_of(array).digest(joined_root(parts)) == tensor_digest(array)


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_subtrees_are_aligned_few_and_cover_the_range(a: int, b: int) -> None:
    start, stop = min(a, b), max(a, b)
    found, at = subtrees(range(start, stop)), start
    for level, first in found:
        assert first == at and first % (1 << level) == 0
        at += 1 << level
    assert at == stop and len(found) <= 2 * max(1, stop.bit_length())


def test_an_altered_byte_gives_another_root() -> None:
    array = np.arange(5 * PER_LEAF + 7, dtype=np.float32)
    data = array.view(np.uint8).copy()

    def root() -> bytes:
        cut = 3 * LEAF_BYTES
        parts = [(range(3), range_roots(data[:cut], 0)), (range(3, 6), range_roots(data[cut:], 3))]
        return joined_root(parts)

    good = root()
    for at in (0, 3 * LEAF_BYTES - 1, 3 * LEAF_BYTES, data.size - 1):
        data[at] ^= 1
        assert root() != good
        data[at] ^= 1
    assert root() == good
