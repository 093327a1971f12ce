"""Another legal order of additions, as another kind of hardware would have it (NUMERICS 14.3).

GPUs and BLAS libraries differ in how they cut a contraction into pieces and in the order in which
they add these. An Order differs on purpose: it permutes the index and cuts it into uneven parts by
its seed, leaves each part to the library, and adds the parts one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from tallystick.products import orders

Tensor = torch.Tensor


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
            found = [torch.from_numpy(p) for p in orders.pieces(self.seed, n, self.parts)]
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
