"""Recording a bounded log (NUMERICS 14.6): an entry wherever a boundary is near."""

from __future__ import annotations

import numpy as np

from tallystick.contracts.replay.blocks import Collector, Entries
from tallystick.contracts.replay.boundaries import around, indices_of
from tallystick.contracts.rounded.cpu import Piece


class BoundedRecord:
    """A trainer, for one output: rounds its own products, and notes an entry where a boundary is
    near."""

    def __init__(self, bits: int) -> None:
        self._bits, self._made = bits, Collector()

    def decide(self, piece: Piece) -> None:
        """Give the piece its values, and note their entries (14.6)."""
        bits, values = self._bits, piece.room()
        at = piece.doubtful(2.0, bits, values)
        if len(at):
            near = around(piece.w.reshape(-1)[at], piece.bound(at), bits)
            # More boundaries than one: the true value, and no entry (14.6).
            exact = at[~near.finite | (near.high - near.low > 1)]
            flat = values.reshape(-1)
            if len(exact):
                flat[exact] = piece.rounded(exact, bits)
            logged = at[near.close]
            up: np.ndarray = indices_of(flat[logged], bits) == near.high[near.close]
            self._made.add(piece.flat(logged), up)
        piece.store(values)

    def entries(self) -> Entries:
        """The output's entries, once all its pieces are decided."""
        return self._made.entries()
