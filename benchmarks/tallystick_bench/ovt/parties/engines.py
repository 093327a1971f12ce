"""Binary64 products of a kind of hardware, for `rounded/1` and bounded logs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick.contracts.replay.stock.emulated import Hardware
from tallystick.contracts.replay.stock.order import pieces
from tallystick.products.engines import DEFAULT, ProductEngine

Array = np.ndarray


@dataclass(frozen=True)
class PermutedEngine:
    """Binary64 products and sums in another order: an admissible kernel (NUMERICS 14.3)."""

    seed: int
    parts: int = 3

    @property
    def name(self) -> str:
        return f"numpy, permuted by seed {self.seed}, split in {self.parts}"

    def mm(self, a: Array, b: Array, out: Array) -> None:
        """out = a·b, see ProductEngine."""
        part = np.empty_like(out)
        for number, piece in enumerate(pieces(self.seed, a.shape[-1], self.parts)):
            target = part if number else out
            DEFAULT.mm(np.take(a, piece, axis=-1), np.take(b, piece, axis=-2), target)
            if number:
                with np.errstate(all="ignore"):
                    np.add(out, part, out=out)

    def sums(self, x: Array) -> Array:
        """f64[R]: row sums, see ProductEngine."""
        total: Array | None = None
        for piece in pieces(self.seed, x.shape[1], self.parts):
            part = DEFAULT.sums(np.take(x, piece, axis=1))
            with np.errstate(all="ignore"):
                total = part if total is None else total + part
        assert total is not None
        return total


def engine_of(kind: Hardware) -> ProductEngine:
    """Products and sums in the order of `kind`. Raises UsageError in a process of another kind."""
    kind.check_here()
    return DEFAULT if kind.seed is None else PermutedEngine(kind.seed, kind.parts)
