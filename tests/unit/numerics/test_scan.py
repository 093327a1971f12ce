"""aten.cumsum (NUMERICS 3.8): order, −0, NaN, axes, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from plain import same
from reference.ops import REFERENCE

from tallystick import evaluate
from tallystick.errors import UsageError

F32 = np.float32


def cumsum(x: np.ndarray, dim: int = 0) -> np.ndarray:
    got = evaluate("aten.cumsum", x, dim=dim)
    assert isinstance(got, np.ndarray)
    return got


def test_terms_are_added_left_to_right() -> None:
    x = np.array([1, 2.0**24, 1, 1, -(2.0**24)], F32)
    # 2^24 + 1 is a tie that rounds down, each time; the two ones together would not be lost.
    same(cumsum(x), np.array([1, 2.0**24, 2.0**24, 2.0**24, 0], F32))
    backwards = cumsum(x[::-1].copy())[-1]
    assert backwards == F32(3)


def test_each_sum_is_the_one_before_plus_one_term() -> None:
    x = np.random.default_rng(5).standard_normal(70_001).astype(F32)
    y = cumsum(x)
    assert y[0] == x[0]
    np.testing.assert_array_equal(y[1:], y[:-1] + x[1:])


def test_the_first_element_is_not_added_to_zero() -> None:
    same(cumsum(np.full(3, -0.0, F32)), np.full(3, -0.0, F32))


def test_nans_are_canonical_from_the_first_on() -> None:
    x = np.array([1, 2, 3, 4], F32)
    x.view(np.uint32)[1] = 0xFFA00001
    assert cumsum(x).view(np.uint32).tolist() == [0x3F800000, *[0x7FC00000] * 3]
    opposed = cumsum(np.array([np.inf, -np.inf, 1], F32))
    assert opposed.view(np.uint32).tolist() == [0x7F800000, 0x7FC00000, 0x7FC00000]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (0, 4), (1, 5), (4, 3, 5)])
def test_every_axis_of_every_shape(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(F32)
    for dim in range(-max(len(shape), 1), max(len(shape), 1)):
        same(cumsum(x, dim), REFERENCE["aten.cumsum"]({"dim": dim}, [x])[0])


def test_strides_are_no_part_of_the_meaning() -> None:
    x = np.random.default_rng(3).standard_normal((6, 9)).astype(F32)
    same(cumsum(x.T, 0), cumsum(np.ascontiguousarray(x.T), 0))
    same(cumsum(x[::2, ::-1], 1), cumsum(np.ascontiguousarray(x[::2, ::-1]), 1))


@pytest.mark.parametrize(
    ("operands", "attrs", "says"),
    [
        ((np.ones(3, np.int64),), {"dim": 0}, "f32"),
        ((np.ones(3, np.float64),), {"dim": 0}, "f32"),
        ((np.ones(3, F32),), {"dim": 1}, "axis 1"),
        ((np.ones(3, F32),), {}, "dim"),
        ((np.ones(3, F32), np.ones(3, F32)), {"dim": 0}, "operands"),
    ],
)
def test_misuse_is_refused(operands: tuple, attrs: dict, says: str) -> None:
    with pytest.raises(UsageError, match=rf"aten\.cumsum.*{says}"):
        evaluate("aten.cumsum", *operands, **attrs)
