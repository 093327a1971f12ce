"""The calls of the golden vectors: writing by index, places, integers (NUMERICS 9.3 and later)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from kernel_cases import Call
from reference.data import SPECIAL, Gen
from reference.floats import F32

I64 = np.int64


def select() -> Iterator[Call]:
    """NUMERICS 9.3: sources that meet, all dtypes and axes, indices fewer than x's, none."""
    g = Gen("select")
    op = "aten.scatter.src"
    for n in (1, 2, 254, 255, 256, 257, 513, 1025):
        yield op, {"dim": 0}, [g.floats(7), g.ints(0, 7, n), g.floats(n)]
    # The last source in ascending order stays, not the first, not the largest.
    yield op, {"dim": 0}, [np.zeros(3, F32), np.array([1, 1, 1]), np.array([5, 9, 2], F32)]
    # A permutation, as of a sort.
    yield op, {"dim": 0}, [np.zeros(5, I64), np.array([3, 0, 4, 1, 2]), np.arange(5, dtype=I64)]
    bits = SPECIAL[: len(SPECIAL) // 2]
    yield op, {"dim": 0}, [SPECIAL.copy(), g.ints(0, len(SPECIAL), len(bits)), bits.copy()]
    for make, size in ((g.any_ints, 6), (g.bools, 5)):
        yield op, {"dim": 0}, [make(size), g.ints(0, size, 9), make(9)]
    for dtype in (np.int32, np.uint8, np.float64):
        x, src = (g.ints(0, 200, n).astype(dtype) for n in (6, 8))
        yield op, {"dim": 0}, [x, g.ints(0, 6, 8), src]
    for dim in (0, 1, 2, -1, -2, -3):
        shape = [3, 4, 5]
        shape[dim] += 2
        yield op, {"dim": dim}, [g.floats(3, 4, 5), g.ints(0, 3, *shape), g.floats(*shape)]
    # Beside dim the indices may be fewer: what they do not reach stays x's.
    yield op, {"dim": 1}, [g.mixed(5, 6), g.ints(0, 6, 3, 4), g.mixed(3, 4)]
    yield op, {"dim": 0}, [g.floats(5, 6, 2), g.ints(0, 5, 300, 3, 1), g.floats(300, 3, 1)]
    yield op, {"dim": 0}, [g.floats(4), np.zeros(0, I64), np.zeros(0, F32)]
    yield op, {"dim": 1}, [np.zeros((0, 3), F32), np.zeros((0, 5), I64), np.zeros((0, 5), F32)]
    yield op, {"dim": 0}, [g.floats(), np.zeros((), I64), g.floats()]


def rank() -> Iterator[Call]:
    """NUMERICS 3.9: lengths around a block, ties, zeros, NaNs, integers, both directions."""
    g = Gen("rank")
    op = "tallystick.rank"
    up, down = ({"dim": 0, "descending": d} for d in (False, True))
    for n in (1, 2, 255, 256, 257, 513, 0):
        yield op, up, [g.floats(n)]
        yield op, down, [g.floats(n)]
    for attrs in (up, down):
        # Equal numbers keep their order in both directions: the second 1 comes after the first.
        yield op, attrs, [np.array([1, 3, 1, 2, 3, 1], F32)]
        yield op, attrs, [np.array([0.0, -0.0, 0.0, -0.0, -1e-45, 1e-45], F32)]
        yield op, attrs, [np.array([np.nan, np.inf, np.nan, -np.inf, 0, np.nan], F32)]
        yield op, attrs, [np.concatenate([SPECIAL, SPECIAL[::-1]])]
        yield op, attrs, [g.ints(-3, 4, 300)]
        yield op, attrs, [np.array([2**63 - 1, -(2**63), 0, -1, -(2**63), 2**53 + 1, 2**53], I64)]
        yield op, attrs, [np.full(270, 4, I64)]
        yield op, attrs, [g.mixed(4, 5, 3)]
        yield op, {**attrs, "dim": 1}, [g.mixed(4, 5, 3)]
        yield op, {**attrs, "dim": -1}, [g.ints(0, 4, 3, 4, 9)]
        yield op, {**attrs, "dim": -1}, [g.floats()]
        yield op, {**attrs, "dim": 1}, [np.zeros((3, 0), F32)]


def whole() -> Iterator[Call]:
    """NUMERICS 10.10: signs, the ends of i64, broadcasting, no elements."""
    g = Gen("whole")
    op = "aten.floor_divide"
    ends = np.array([-(2**63), -(2**63) + 1, -7, -1, 0, 1, 7, 2**53 + 1, 2**63 - 1], I64)
    divisors = ends[ends != 0]
    yield op, {}, [ends.reshape(-1, 1), divisors]
    yield op, {}, [g.ints(-20, 21, 6, 41), np.array([-3, -2, -1, 1, 2, 3]).reshape(6, 1)]
    yield op, {}, [g.any_ints(300), g.any_ints(300) | 1]
    yield op, {}, [g.any_ints(40), g.ints(1, 9)]
    yield op, {}, [g.ints(-50, 50), g.ints(1, 9, 2, 1, 3)]
    yield op, {}, [np.zeros((0, 3), I64), np.zeros(3, I64)]


def narrow() -> Iterator[Call]:
    """NUMERICS 10.7, its last row: the ends of each integer type, and values beyond them."""
    g = Gen("narrow")
    ends = np.array([-(2**63), -(2**32) - 1, -(2**31) - 1, -(2**31), -257, -1, 0, 1, 255, 256,
                     2**31 - 1, 2**31, 2**32, 2**32 + 7, 2**63 - 1], I64)  # fmt: skip
    for dtype in ("i32", "u8"):
        op, attrs = "aten._to_copy", {"dtype": dtype}
        yield op, attrs, [ends]
        yield op, attrs, [g.any_ints(300)]
        yield op, attrs, [g.ints(-500, 500, 3, 5, 2)]
        yield op, attrs, [g.any_ints()]
        yield op, attrs, [np.zeros((0, 3), I64)]


def bits() -> Iterator[Call]:
    """NUMERICS 10.11: signs, shifts at and beyond their ends, broadcasting, no elements."""
    g = Gen("bits")
    ends = np.array([-(2**63), -(2**63) + 1, -6, -1, 0, 1, 5, 2**62 + 3, 2**63 - 1], I64)
    shifts = np.array([0, 1, 2, 31, 32, 62, 63, 64, 65, -1, -64, 2**40, -(2**63)], I64)
    pairs = [f"aten.bitwise_{n}.Tensor" for n in ("and", "or", "xor")]
    for op in pairs:
        yield op, {}, [ends.reshape(-1, 1), ends]
        yield op, {}, [g.any_ints(300), g.any_ints(300)]
        yield op, {}, [g.any_ints(), g.any_ints(2, 1, 3)]
        yield op, {}, [np.zeros((0, 3), I64), np.zeros(3, I64)]
    for op in ("aten.bitwise_left_shift.Tensor", "aten.bitwise_right_shift.Tensor"):
        yield op, {}, [ends.reshape(-1, 1), shifts]
        yield op, {}, [g.any_ints(300), g.ints(-3, 70, 300)]
        yield op, {}, [g.any_ints(2, 4), g.ints(0, 64)]
        yield op, {}, [np.zeros((0, 3), I64), np.zeros(3, I64)]
    yield "aten.bitwise_not", {}, [ends]
    yield "aten.bitwise_not", {}, [g.any_ints(4, 70)]


def fold() -> Iterator[Call]:
    """NUMERICS 10.12: every number of operands up to 9 and about powers of two, the split's order,
    means with and without a count, zeros' signs, NaN and infinities, no elements."""
    g = Gen("fold")
    op = "tallystick.fold"
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 255, 256):
        yield op, {"mean": False}, [g.mixed(7) for _ in range(n)]
        yield op, {"mean": True}, [g.floats(3, 2) for _ in range(n)]
    for count in (1, 2, 3, 257, 1000, 65535, 65536):
        yield op, {"count": count, "mean": True}, [g.mixed(5), g.mixed(5), g.mixed(5)]
    # A lone operand keeps its bits, but not a NaN's; a mean of one divides by 1.
    yield op, {"mean": False}, [SPECIAL.copy()]
    yield op, {"mean": True}, [SPECIAL.copy()]
    yield op, {"count": 3, "mean": True}, [SPECIAL.copy()]
    pairs = np.meshgrid(SPECIAL, SPECIAL)
    yield op, {"mean": False}, [np.array(x, order="C") for x in pairs]
    yield op, {"mean": True}, [*(np.array(x, order="C") for x in pairs), pairs[0].copy()]
    # 2^24 and ones: another order of additions gives another sum.
    big, one = F32(2.0**24), F32(1)
    rows = [[big, one, one], [one, one, big], [big, one, one, one, one], [one, big, -big, one, one]]
    for row in rows:
        yield op, {"mean": False}, [np.array([x], F32) for x in row]
    yield op, {"mean": False}, [np.full(2, -0.0, F32), np.full(2, -0.0, F32)]
    for n in (1, 2, 3, 6):
        yield op, {"mean": n == 3}, [g.floats() for _ in range(n)]  # 0-d
        yield op, {"mean": n == 2}, [g.floats(300) for _ in range(n)]
        yield op, {"mean": n == 6}, [np.zeros((0, 3), F32) for _ in range(n)]
