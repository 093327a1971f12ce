"""Integers: division (NUMERICS 10.10) and bits (10.11)."""

from __future__ import annotations

import numpy as np
import pytest
from plain import evaluate as into_garbage
from plain import same
from reference.ops import REFERENCE

from tallystick import evaluate
from tallystick.contracts.ordered.cpu import kernel
from tallystick.errors import RefusedOperandsError, UsageError

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


# --- bits (10.11) ---------------------------------------------------------------------------------
LEFT, RIGHT = "aten.bitwise_left_shift.Tensor", "aten.bitwise_right_shift.Tensor"
SHIFTS = np.array([0, 1, 62, 63, 64, 65, -1, LEAST])


def test_shifts_to_the_left_drop_what_leaves() -> None:
    for a, wanted in (
        (5, [5, 10, 2**62, LEAST, 0, 0, 0, 0]),
        (-1, [-1, -2, -(2**62), LEAST, 0, 0, 0, 0]),
    ):
        assert evaluate(LEFT, np.array(a), SHIFTS).tolist() == wanted  # type: ignore[union-attr]


def test_shifts_to_the_right_keep_the_sign() -> None:
    for a, wanted in ((2**62 + 1, [2**62 + 1, 2**61, 1, 0, 0, 0, 0, 0]),
                      (-7, [-7, -4, -1, -1, -1, -1, -1, -1])):  # fmt: skip
        assert evaluate(RIGHT, np.array(a), SHIFTS).tolist() == wanted  # type: ignore[union-attr]


def test_bits_of_any_integers() -> None:
    rng = np.random.default_rng(9)
    a, b = rng.integers(LEAST, 2**63 - 1, (2, 999))
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    for name, of in (
        ("and", lambda v, w: v & w),
        ("or", lambda v, w: v | w),
        ("xor", lambda v, w: v ^ w),
    ):
        (got,) = into_garbage(f"aten.bitwise_{name}.Tensor", {}, a, b)
        assert got.tolist() == [of(v, w) for v, w in pairs]
    assert into_garbage("aten.bitwise_not", {}, a)[0].tolist() == [-1 - v for v in a.tolist()]


@pytest.mark.parametrize("name", ["and", "or", "xor", "left_shift", "right_shift"])
def test_bits_of_other_dtypes_are_refused(name: str) -> None:
    op = f"aten.bitwise_{name}.Tensor"
    for dtype in (np.float32, np.int32, np.uint8):
        with pytest.raises(UsageError, match=rf"{op}.*i64"):
            evaluate(op, np.ones(3, dtype), np.ones(3, dtype))
