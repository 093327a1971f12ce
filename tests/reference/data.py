"""Deterministic operands for vectors and property tests: a counter-based generator of our own.

numpy's streams may change between its versions; these must not.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from reference.floats import F32, canonical

_GAMMA, _M1, _M2 = (
    np.uint64(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)

SPECIAL = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000003, 0x007FFFFF, 0x807FFFFF,
     0x00800000, 0x80800000, 0x00800001, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001,
     0xBF7FFFFF, 0xBF800001, 0x3F000000, 0xBF000000, 0x40000000, 0xC0000000, 0x40400000,
     0x4B800000, 0x4B7FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
     0x0DA24260, 0x8DA24260, 0x42B17218, 0xC2AEAC50, 0xC2CFF1B5, 0x40490FDB, 0x461C4000,
     0x5F000000, 0xDF000000],
    np.uint32,
).view(F32)  # fmt: skip


class Gen:
    """Operands of one case; every call continues the stream."""

    def __init__(self, label: str) -> None:
        self._seed = np.uint64(int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big"))
        self._at = 0

    def words(self, n: int) -> np.ndarray:
        """n 64-bit words: SplitMix64 at consecutive counters."""
        with np.errstate(over="ignore"):
            z = self._seed + _GAMMA * np.arange(self._at + 1, self._at + 1 + n, dtype=np.uint64)
            z = (z ^ (z >> np.uint64(30))) * _M1
            z = (z ^ (z >> np.uint64(27))) * _M2
            z = z ^ (z >> np.uint64(31))
        self._at += n
        return z

    def _unit(self, n: int) -> np.ndarray:
        return (self.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def floats(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Bell-shaped around 0: four uniforms added, exact arithmetic up to one rounding."""
        n = math.prod(shape)
        u = self._unit(n) + self._unit(n) + self._unit(n) + self._unit(n)
        return np.asarray(((u - 2.0) * scale).astype(F32).reshape(shape))

    def span(self, low: float, high: float, *shape: int) -> np.ndarray:
        """Uniform in [low, high)."""
        u = self._unit(math.prod(shape))
        return np.asarray((low + u * (high - low)).astype(F32).reshape(shape))

    def bits(self, *shape: int) -> np.ndarray:
        """Any bit pattern, NaN canonical."""
        raw = (self.words(math.prod(shape)) >> np.uint64(32)).astype(np.uint32).view(F32)
        return canonical(raw).reshape(shape)

    def wide(self, *shape: int, low: int = -60, high: int = 60) -> np.ndarray:
        """Magnitudes spread evenly over the powers of two in [low, high)."""
        n = math.prod(shape)
        e = (self.words(n) % np.uint64(high - low)).astype(np.int64) + low
        mantissa = 1.0 + self._unit(n)
        sign = 1.0 - 2.0 * (self.words(n) & np.uint64(1)).astype(np.float64)
        with np.errstate(all="ignore"):
            return np.asarray(np.ldexp(mantissa * sign, e).astype(F32).reshape(shape))

    def tiny(self, *shape: int) -> np.ndarray:
        """Subnormals, zeros and the smallest normals of both signs."""
        n = math.prod(shape)
        w = self.words(n)
        raw = (w & np.uint64(0x81FFFFFF)) & ~((w >> np.uint64(40)) & np.uint64(0x01FFF000))
        return np.asarray(raw.astype(np.uint32).view(F32).reshape(shape))

    def mixed(self, *shape: int) -> np.ndarray:
        """Ordinary numbers with every eighth a special one."""
        n = math.prod(shape)
        x, w = self.floats(n, scale=3.0), self.words(n)
        pick = SPECIAL[(w % np.uint64(len(SPECIAL))).astype(np.int64)]
        rare = (w >> np.uint64(60)) < np.uint64(2)
        return np.asarray(np.where(rare, pick, x).astype(F32).reshape(shape))

    def ints(self, low: int, high: int, *shape: int) -> np.ndarray:
        """i64 in [low, high)."""
        w = self.words(math.prod(shape)) % np.uint64(high - low)
        return np.asarray((w.astype(np.int64) + low).reshape(shape))

    def any_ints(self, *shape: int) -> np.ndarray:
        """Any i64."""
        return np.asarray(self.words(math.prod(shape)).view(np.int64).reshape(shape))

    def bools(self, *shape: int) -> np.ndarray:
        return np.asarray(
            (self.words(math.prod(shape)) >> np.uint64(63)).astype(bool).reshape(shape)
        )
