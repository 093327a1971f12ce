"""Other admissible kernels (NUMERICS 14.3): the same terms in other trees."""

from __future__ import annotations

import numpy as np


class SplitEngine:
    """Terms permuted, cut in parts, the parts' sums added from the last to the first."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.name = f"split/{seed}"

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        k = a.shape[-1]
        order = np.random.default_rng(self.seed).permutation(k)
        parts = np.array_split(order, min(k, 5)) if k else []
        out.fill(0)
        with np.errstate(all="ignore"):
            for part in reversed(parts):
                out += np.matmul(a[..., part], b[..., part, :])

    def sums(self, x: np.ndarray) -> np.ndarray:
        order = np.random.default_rng(self.seed).permutation(x.shape[1])
        total = np.zeros(len(x))
        with np.errstate(all="ignore"):
            for part in np.array_split(order, 3):
                total = x[:, part].sum(axis=1) + total
        return total
