"""aten.floor_divide (NUMERICS 10.10): signs, the one quotient that wraps, a divisor 0."""

from __future__ import annotations

import numpy as np
import pytest
from plain import evaluate as into_garbage
from plain import same
from reference.ops import REFERENCE

from tallystick import evaluate
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.kernels.table import kernel

OP, LEAST = "aten.floor_divide", -(2**63)


def test_quotients_are_rounded_down() -> None:
    a, b = np.array([7, -7, 7, -7, 6, -6, 0]), np.array([2, 2, -2, -2, 3, 3, -5])
    assert evaluate(OP, a, b).tolist() == [3, -4, -4, 3, 2, -2, 0]  # type: ignore[union-attr]


def test_the_least_integer_wraps() -> None:
    a, b = np.array([LEAST, LEAST, LEAST, LEAST + 1]), np.array([-1, 1, 2, -1])
    got = evaluate(OP, a, b)
    assert got.tolist() == [LEAST, LEAST, LEAST // 2, 2**63 - 1]  # type: ignore[union-attr]


def test_large_quotients_are_exact() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(LEAST, 2**63 - 1, (2, 5000))
    b[b == 0] = 3
    (got,) = into_garbage(OP, {}, a, b)
    same(got, REFERENCE[OP]({}, [a, b])[0])


@pytest.mark.parametrize("shapes", [((3, 1), (4,)), ((), (2, 3)), ((5,), ()), ((0, 3), (3,))])
def test_operands_are_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (
        np.arange(1, 1 + int(np.prod(s))).reshape(s) - 9 * (k == 0) for k, s in enumerate(shapes)
    )
    same(into_garbage(OP, {}, a, b)[0], a // b)


def test_a_divisor_zero_is_refused_before_anything_is_written() -> None:
    a, b = np.array([4, 5, 6]), np.array([2, 0, 3])
    with pytest.raises(RefusedOperandsError, match=r"aten\.floor_divide.*divisor is 0"):
        kernel[OP].run({}, [a, b], [a])
    assert a.tolist() == [4, 5, 6]
    empty = into_garbage(OP, {}, np.zeros((0, 2), np.int64), np.zeros(2, np.int64))
    assert empty[0].shape == (0, 2)  # no quotient, so nothing to refuse


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, bool])
def test_other_dtypes_are_refused(dtype: type) -> None:
    with pytest.raises(UsageError, match=r"aten\.floor_divide.*i64"):
        evaluate(OP, np.ones(3, dtype), np.ones(3, dtype))
