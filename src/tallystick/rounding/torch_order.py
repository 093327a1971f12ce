"""Another legal order of additions, as another kind of hardware would have it (NUMERICS 14.3).

GPUs and BLAS libraries differ in how they cut a contraction into pieces and in which order they
add them. An Order does so on purpose: the index is permuted and cut into uneven parts by its seed,
each part is left to the library, and the parts are added one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

Tensor = torch.Tensor


@dataclass
class Order:
    """Additions in an order drawn from `seed` for every length, in `parts` pieces."""

    seed: int
    parts: int = 3
    _permutations: dict[int, Tensor] = field(default_factory=dict, repr=False)

    def permutation(self, n: int) -> Tensor:
        """A permutation of range(n), the same for every call: i64[n]."""
        found = self._permutations.get(n)
        if found is None:
            drawn = np.random.default_rng([self.seed, n]).permutation(n)
            found = torch.from_numpy(drawn.astype(np.int64))
            if n <= 1 << 16:  # short ones come again and again
                self._permutations[n] = found
        return found

    def pieces(self, n: int) -> list[Tensor]:
        """The permutation cut at uneven places; at least one piece, none empty unless n is 0."""
        cuts = np.random.default_rng([self.seed, n, 1]).integers(1, max(n, 2), self.parts - 1)
        ends = sorted({int(c) for c in cuts if c < n} | {n})
        starts = [0, *ends[:-1]]
        order = self.permutation(n)
        return [order[a:b] for a, b in zip(starts, ends, strict=True)]

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
        if a.shape[-1] < 2:
            return torch.matmul(a, b)
        total: Tensor | None = None
        for piece in self.pieces(a.shape[-1]):
            at = piece.to(a.device)
            part = torch.matmul(a.index_select(-1, at), b.index_select(-2, at))
            total = part if total is None else total.add_(part)
        assert total is not None
        return total
