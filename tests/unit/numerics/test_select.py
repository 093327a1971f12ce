"""aten.scatter.src (NUMERICS 9.3): which of several sources stays, axes, dtypes, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from plain import evaluate as into_garbage
from plain import same
from reference.data import Gen
from reference.ops import REFERENCE

from tallystick import evaluate
from tallystick.contracts.ordered.cpu import kernel
from tallystick.errors import RefusedOperandsError, UsageError

F32, OP = np.float32, "aten.scatter.src"


def scatter(x: np.ndarray, index: np.ndarray, source: np.ndarray, dim: int = 0) -> np.ndarray:
    got = evaluate(OP, x, index, source, dim=dim)
    assert isinstance(got, np.ndarray)
    return got


def test_the_last_source_in_ascending_order_stays() -> None:
    x, index = np.zeros(3, F32), np.array([1, 2, 1, 1])
    same(scatter(x, index, np.array([9, 1, 7, 2], F32)), np.array([0, 2, 1], F32))


@pytest.mark.parametrize("seed", range(4))
def test_one_that_stays_is_the_last_of_thousands(seed: int) -> None:
    """numpy's assignment to a list of positions keeps its order, at every length."""
    rng = np.random.default_rng(seed)
    n, rows = (10, 5_000, 70_001, 300_000)[seed], (3, 11, 100, 60_000)[seed]
    index = rng.integers(0, rows, n)
    last = np.full(rows, -1)
    for i, to in enumerate(index.tolist()):
        last[to] = i
    got = scatter(np.full(rows, -1), index, np.arange(n))
    np.testing.assert_array_equal(got, last)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (0, 4), (4, 0, 2), (3, 4), (2, 3, 4), (1, 1, 2)])
def test_every_axis_with_fewer_and_with_more_indices(shape: tuple[int, ...]) -> None:
    g = Gen(f"select {shape}")
    for dim in range(-max(len(shape), 1), max(len(shape), 1)):
        for along in (0, 1, 7):
            own = [max(n - 1, 0) if along == 7 else n for n in shape]
            if shape:
                own[dim] = along if shape[dim] else 0
            high = shape[dim] if shape else 1
            index, source = g.ints(0, max(high, 1), *own), g.mixed(*own)
            x = g.mixed(*shape)
            same(scatter(x, index, source, dim), REFERENCE[OP]({"dim": dim}, [x, index, source])[0])


def test_bits_are_kept() -> None:
    """NUMERICS 1.5: no element is computed, so even another NaN stays as it is."""
    odd = np.array([0xFFA00001, 0x80000000, 0x7F800001], np.uint32).view(F32)
    (got,) = into_garbage(OP, {"dim": 0}, odd, np.array([2, 0]), odd[:2].copy())
    assert got.view(np.uint32).tolist() == [0x80000000, 0x80000000, 0xFFA00001]


def test_strides_are_no_part_of_the_meaning() -> None:
    g = Gen("select strides")
    x, index, source = g.floats(6, 9), g.ints(0, 9, 6, 9), g.floats(6, 9)
    plain = scatter(x.T.copy(), index.T.copy() % 9, source.T.copy(), 0)
    same(scatter(x.T, index.T % 9, source.T, 0), plain)
    (own,) = into_garbage(OP, {"dim": 1}, x[:, ::-1], index[:, ::-1], source[:, ::-1])
    same(own, scatter(x[:, ::-1].copy(), index[:, ::-1].copy(), source[:, ::-1].copy(), 1))


def test_the_output_may_be_the_storage_of_x() -> None:
    x = np.arange(6, dtype=F32).reshape(2, 3)
    assert kernel[OP].inplace == ((0, 0),)
    kernel[OP].run({"dim": 1}, [x, np.array([[0, 0]]), np.array([[8, 9]], F32)], [x])
    assert x.tolist() == [[9, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_an_index_outside_is_refused_before_anything_is_written(bad: int) -> None:
    x = np.ones((3, 2), F32)
    index = np.array([[0, 1], [2, bad]])
    with pytest.raises(RefusedOperandsError, match=r"aten\.scatter\.src.*outside \[0, 3\)"):
        kernel[OP].run({"dim": 0}, [x, index, np.full((2, 2), 5, F32)], [x])
    assert (x == 1).all()


ROWS = np.ones((3, 2), F32)


@pytest.mark.parametrize(
    ("operands", "says"),
    [
        ((ROWS, np.zeros((3, 2), np.int32), ROWS), "i64"),
        ((ROWS, np.zeros((3, 3), np.int64), np.ones((3, 3), F32)), "do not fit"),
        ((ROWS, np.zeros(3, np.int64), np.ones(3, F32)), "do not fit"),
        ((ROWS, np.zeros((2, 2), np.int64), ROWS), "source"),
        ((ROWS, np.zeros((3, 2), np.int64), np.ones((3, 2), np.int64)), "one dtype"),
    ],
)
def test_misuse_is_refused(operands: tuple, says: str) -> None:
    with pytest.raises(UsageError, match=rf"aten\.scatter\.src.*{says}"):
        evaluate(OP, *operands, dim=0)
