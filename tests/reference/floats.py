"""Binary32 building blocks: rounding of attributes, fma, maximum, canonical NaN (NUMERICS 1)."""

from __future__ import annotations

import numpy as np

F32 = np.float32
F64 = np.float64
NAN32 = np.uint32(0x7FC00000)
NAN64 = np.uint64(0x7FF8000000000000)


def bits32(pattern: int) -> np.float32:
    """The binary32 value with this bit pattern."""
    return np.uint32(pattern).view(np.float32)


def rn32(value: float) -> np.float32:
    """RN32 of a binary64 attribute (1.9)."""
    with np.errstate(all="ignore"):
        return F32(F64(value))


def rn32_int(n: int) -> np.float32:
    """RN32 of an integer: one rounding, also beyond 2^53 (1.2)."""
    if abs(n) < 1 << 53:
        return F32(float(n))
    drop = abs(n).bit_length() - 24
    kept, rest = abs(n) >> drop, abs(n) & ((1 << drop) - 1)
    half = 1 << (drop - 1)
    kept += rest > half or (rest == half and kept & 1 == 1)
    value = F32(float(kept)) * F32(2.0**drop)
    return -value if n < 0 else value


def canonical(x: np.ndarray) -> np.ndarray:
    """x with every NaN the canonical one (1.5)."""
    x = np.array(x)
    if x.dtype == F32:
        bits = x.view(np.uint32)
        return np.where(np.isnan(x), NAN32, bits).astype(np.uint32).view(F32)
    if x.dtype == F64:
        bits64 = x.view(np.uint64)
        return np.where(np.isnan(x), NAN64, bits64).astype(np.uint64).view(F64)
    return x


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """RN32(a·b + c), one rounding (1.4).

    The product is exact in binary64 (24 + 24 bits). The sum is computed there rounded to odd
    (Boldo and Melquiond): an inexact sum gets an odd last bit, so that the second rounding, to
    at most 24 of 53 bits, sees on which side of every boundary the exact sum lies.
    """
    with np.errstate(all="ignore"):
        p = np.asarray(a, F32).astype(F64) * np.asarray(b, F32).astype(F64)
        p, d = np.broadcast_arrays(p, np.asarray(c, F32).astype(F64))
        s = np.asarray(p + d)
        # Knuth's two-sum: s + error is exactly p + d.
        t = s - p
        error = (p - (s - t)) + (d - t)
        even = (s.view(np.int64) & 1) == 0
        odd = np.where(error > 0, np.nextafter(s, np.inf), np.nextafter(s, -np.inf))
        fix = np.isfinite(s) & (error != 0) & even
        return np.asarray(np.where(fix, odd, s).astype(F32))


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NaN if either is NaN; else the larger; +0 above −0 (1.11)."""
    a, b = np.broadcast_arrays(np.asarray(a, F32), np.asarray(b, F32))
    larger = np.where(a > b, a, b)
    zeros = (a == 0) & (b == 0)
    larger = np.where(zeros & ~np.signbit(a), a, larger)
    return np.where(np.isnan(a) | np.isnan(b), F32(np.nan), larger).astype(F32)


def minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NaN if either is NaN; else the smaller; −0 below +0 (1.11)."""
    a, b = np.broadcast_arrays(np.asarray(a, F32), np.asarray(b, F32))
    smaller = np.where(a < b, a, b)
    zeros = (a == 0) & (b == 0)
    smaller = np.where(zeros & np.signbit(a), a, smaller)
    return np.where(np.isnan(a) | np.isnan(b), F32(np.nan), smaller).astype(F32)
