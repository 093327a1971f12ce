"""Another legal order of additions, as another kind of hardware would have it (NUMERICS 14.3).

GPUs and BLAS libraries differ in how they cut a contraction into pieces and in the order in which
they add these. An Order differs on purpose: it permutes the index and cuts it into uneven parts by
its seed, leaves each part to the library, and adds the parts one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

Array = np.ndarray
Tensor = torch.Tensor


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


@dataclass
class DrawnOrder:
    """Additions in an order drawn from `seed` for every length, in `parts` pieces."""

    seed: int
    parts: int = 3
    _drawn: dict[int, list[Tensor]] = field(default_factory=dict, repr=False, compare=False)

    def pieces(self, n: int) -> list[Tensor]:
        """The permuted range(n) cut at uneven places; at least one piece."""
        found = self._drawn.get(n)
        if found is None:
            found = [torch.from_numpy(p) for p in pieces(self.seed, n, self.parts)]
            if n <= 1 << 16:  # short lengths come again and again
                self._drawn[n] = found
        return found

    def permutation(self, n: int) -> Tensor:
        """The permuted range(n), i64[n]; every call gives the same one."""
        return torch.cat(self.pieces(n))

    def sum(self, x: Tensor) -> Tensor:
        """Sums along the last axis."""
        total: Tensor | None = None
        for piece in self.pieces(x.shape[-1]):
            part = x.index_select(-1, piece.to(x.device)).sum(-1)
            total = part if total is None else total + part
        assert total is not None
        return total

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b over the last axis of a and the last but one of b."""
        total: Tensor | None = None
        for piece in self.pieces(a.shape[-1]):
            at = piece.to(a.device)
            part = torch.matmul(a.index_select(-1, at), b.index_select(-2, at))
            total = part if total is None else total.add_(part)
        assert total is not None
        return total
