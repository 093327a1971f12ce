"""Sums of squares from values of blocks (NUMERICS 3.1, 3.7)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.sums import total

from tallystick.contracts.ordered.cpu import run_of
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.program.cutting import BlockSums, block_count

LENGTHS = [1, 31, 32, 255, 256, 257, 511, 512, 513, 1024, 65535, 65536, 65537, 65536 + 300]
ODD = [-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-23, -3e38, 1.5e19]


def bits(x: np.ndarray) -> bytes:
    return np.asarray(x, np.float32).tobytes()


def sample(n: int, seed: int, odd: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-9, 9, n)).astype(np.float32)
    for value in rng.choice(ODD, odd):
        x[rng.integers(n)] = value
    return x


def from_ranges(x: np.ndarray, cuts: list[int]) -> np.ndarray:
    """The sum, from ranges that begin at multiples of 512 elements."""
    at = [0, *sorted({c * 512 for c in cuts if c * 512 < x.size}), x.size]
    with ExecutionContext(1).entered():
        sums = BlockSums(CPU)
        values = [sums.values(x[a:b]) for a, b in itertools.pairwise(at)]
        assert sum(map(len, values)) == block_count(x.size)
        return sums.total(np.concatenate(values))


def whole(x: np.ndarray) -> np.ndarray:
    out = np.empty((), np.float32)
    run_of("tallystick.sum_squares")({}, [x], [out])
    return out


@given(
    st.one_of(st.sampled_from(LENGTHS), st.integers(1, 70_000)),
    st.lists(st.integers(1, 136), max_size=5),
    st.integers(0, 2**32 - 1),
    st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_the_sum_of_any_ranges(n: int, cuts: list[int], seed: int, odd: int) -> None:
    x = sample(n, seed, odd)
    assert bits(from_ranges(x, cuts)) == bits(whole(x))


@pytest.mark.parametrize("n", [n for n in LENGTHS if n not in (65535, 65537)])
def test_the_sum_of_the_plain_reference(n: int) -> None:
    x = sample(n, n, 0)
    with np.errstate(all="ignore"):
        assert bits(from_ranges(x, [1, 2, 100])) == bits(np.asarray(total(x * x)))
    for value in ODD if n <= 1024 else [np.nan]:
        x[n // 2] = value
        with np.errstate(all="ignore"):
            expected = np.asarray(total(x * x))
        found = from_ranges(x, [1, 128])
        assert bits(found) == (b"\0\0\xc0\x7f" if np.isnan(expected) else bits(expected))


def test_zeros_keep_their_sign_as_the_clause_has_it() -> None:
    """Squares of zeros are +0, of any sign."""
    x = np.full(1024, -0.0, np.float32)
    assert bits(from_ranges(x, [1])) == bits(whole(x)) == b"\0\0\0\0"
