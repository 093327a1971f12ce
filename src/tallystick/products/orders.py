"""Other legal orders of additions, drawn from a seed (NUMERICS 14.3)."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def permutation(seed: int, n: int) -> Array:
    """A permutation of range(n), i64[n]; every call with this seed gives the same one."""
    drawn: Array = np.random.default_rng([seed, n]).permutation(n).astype(np.int64)
    return drawn


def pieces(seed: int, n: int, parts: int) -> list[Array]:
    """`permutation(seed, n)` cut at uneven places into at most `parts` pieces.

    No piece is empty unless n is 0.
    """
    cuts = np.random.default_rng([seed, n, 1]).integers(1, max(n, 2), parts - 1)
    ends = sorted({int(c) for c in cuts if c < n} | {n})
    order = permutation(seed, n)
    return [order[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
