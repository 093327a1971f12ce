"""Philox4x32-10 in numpy: the plain reference of the data order (COMMITMENTS 8.4).

After Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Four 32-bit words from a counter of four and a key of two 32-bit words; ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def philox4x32_array(c0: U32, c1: int, c2: int, c3: int, key: tuple[int, int]) -> tuple[U32, U32]:
    """The first two output words for a vector of first counter words; it shares the others."""
    x0 = c0.astype(np.uint64)
    x1 = np.full_like(x0, c1)
    x2 = np.full_like(x0, c2)
    x3 = np.full_like(x0, c3)
    k0, k1 = key
    mask, half = np.uint64(_MASK), np.uint64(32)
    for _ in range(10):
        p0, p1 = x0 * np.uint64(_M0), x2 * np.uint64(_M1)
        x0, x1 = (p1 >> half) ^ x1 ^ np.uint64(k0), p1 & mask
        x2, x3 = (p0 >> half) ^ x3 ^ np.uint64(k1), p0 & mask
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return x0.astype(np.uint32), x1.astype(np.uint32)
