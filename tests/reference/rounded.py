"""The grid, exact sums and their bounds in plain integers and fractions (NUMERICS 13, 14.4)."""

from __future__ import annotations

from fractions import Fraction
from math import isfinite, isinf, isnan

import numpy as np

from reference.floats import F32, F64
from reference.sums import sum_columns

ACC_BYTES = 80
UNIT = Fraction(1, 2**298)
_NAN, _INF = 0x7FC00000, 0x7F800000


def grid_pattern(v: Fraction, b: int) -> int:
    """The binary32 bits of R(v), v a real number (13.2)."""
    if v == 0:
        return 0
    size, sign = abs(v), 0x80000000 if v < 0 else 0
    # exponent: 2^e <= size < 2^(e+1), not below that of the least normal number
    e = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** e > size:
        e -= 1
    e = max(e, -126)
    step = Fraction(2) ** (e - 23 + 32 - b)
    steps, rest = divmod(size, step)
    if 2 * rest > step or (2 * rest == step and steps & 1):
        steps += 1
    # steps of the binade, counted from 0 and from 2^e: the pattern's order is the numbers' order
    first = 1 << (b - 9)
    pattern = steps if e == -126 and steps < first else steps - first + first * (e + 127)
    pattern = min(pattern << (32 - b), _INF)
    return sign | pattern if pattern else 0


def grid(w: float, b: int) -> int:
    """The bits of R(w), w a binary64."""
    if isnan(w):
        return _NAN
    if isinf(w):
        return _INF if w > 0 else 0x80000000 | _INF
    return grid_pattern(Fraction(w), b)


def patterns(values: list[int]) -> np.ndarray:
    return np.array(values, np.uint32).view(F32)


def products(a: np.ndarray, b: np.ndarray) -> list[float]:
    """The terms a[k]·b[k]: exact in binary64 (13.3)."""
    with np.errstate(all="ignore"):
        return [float(p) for p in np.asarray(a, F32).astype(F64) * np.asarray(b, F32).astype(F64)]


def record(terms: list[float], start: bytes | None = None) -> bytes:
    """The accumulator record after these terms (13.5)."""
    total, flags = 0, 0
    if start is not None:
        total, flags = int.from_bytes(start[:79], "little", signed=True), start[79]
    for t in terms:
        if isfinite(t):
            numerator, denominator = t.as_integer_ratio()
            units, rest = divmod(numerator * UNIT.denominator, denominator)
            assert rest == 0
            total += units
        else:
            flags |= 1 if isnan(t) else 2 if t > 0 else 4
    return total.to_bytes(79, "little", signed=True) + bytes([flags])


def rounded_record(acc: bytes, b: int) -> int:
    """The bits of R of a record's sum (13.2, 13.4)."""
    flags = acc[79]
    if flags & 1 or flags & 6 == 6:
        return _NAN
    if flags & 6:
        return _INF if flags & 2 else 0x80000000 | _INF
    return grid_pattern(int.from_bytes(acc[:79], "little", signed=True) * UNIT, b)


def rounded_sum(terms: list[float], b: int) -> int:
    """The bits of R(v*) of these terms."""
    return rounded_record(record(terms), b)


def square_sums(x: np.ndarray) -> np.ndarray:
    """SUM64 of the squares down each column of x[n, outputs] (14.4)."""
    wide = np.asarray(x, F32).astype(F64)
    return sum_columns(wide * wide)


def abs_sums(x: np.ndarray) -> np.ndarray:
    """SUM64 of the absolute values down each column of x[n, outputs] (14.4)."""
    return sum_columns(np.abs(np.asarray(x, F32).astype(F64)))
