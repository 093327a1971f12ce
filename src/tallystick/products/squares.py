"""The bound of a sum's error (NUMERICS 14.4): its factor, and SUM64 of the squares of rows that
arrive in parts (3.1, 3.6)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.errors import UsageError
from tallystick.numerics.grid import BOUND_FACTOR

_BLOCK = 256
_LANES = 32


def term_factor(terms: int) -> float:
    """RN64(RN64(K)·C) of 14.4. Raises UsageError for more terms than the bound covers."""
    if terms > 1 << 32:
        raise UsageError(f"A sum of {terms} terms exceeds the 2^32 of NUMERICS 14.4.")
    return float(terms) * BOUND_FACTOR


def sum64_rows(x: np.ndarray) -> np.ndarray:
    """f64[R]: SUM64 (3.1) of the rows of x f64[R,n], whose elements are not negative.

    Absent lanes are +0 here, which is the identity for such numbers.
    """
    rows, n = x.shape
    if n <= 1:
        return np.zeros(rows) if n == 0 else x[:, 0].copy()
    blocks = -(-n // _BLOCK)
    padded = np.zeros((rows, blocks * _BLOCK))
    padded[:, :n] = x
    cut = padded.reshape(rows, blocks, _BLOCK // _LANES, _LANES)
    lanes = cut[:, :, 0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for i in range(1, _BLOCK // _LANES):
            lanes += cut[:, :, i]
        width = _LANES
        while width > 1:
            width //= 2
            lanes[:, :, :width] += lanes[:, :, width : 2 * width]
    return sum64_rows(lanes[:, :, 0]) if blocks > 1 else lanes[:, 0, 0]


class RowSquares:
    """SUM64 of the squares of `rows` rows, whose elements are added from left to right."""

    def __init__(self, rows: int) -> None:
        self._blocks: list[np.ndarray] = []
        self._rest = np.empty((rows, 0), np.float32)

    def add(self, part: np.ndarray) -> None:
        """Append f32[rows,k], C-contiguous, to the rows."""
        rows = len(self._rest)
        if self._rest.shape[1]:
            part = np.concatenate((self._rest, part), axis=1)
        full = part.shape[1] // _BLOCK
        if full and part.shape[1] == full * _BLOCK:
            cut = part.reshape(rows * full, _BLOCK)
            self._blocks.append(np.asarray(_core.square_sums_rows(cut)).reshape(rows, full))
        else:
            for block in range(full):
                values = _core.square_sums_rows(part[:, block * _BLOCK : (block + 1) * _BLOCK])
                self._blocks.append(np.asarray(values).reshape(rows, 1))
        self._rest = part[:, full * _BLOCK :].copy()

    def total(self) -> np.ndarray:
        """End the addition; return f64[rows], the sums."""
        blocks = list(self._blocks)
        if self._rest.shape[1]:
            rest = np.asarray(_core.square_sums_rows(self._rest)).reshape(-1, 1)
            blocks.append(rest)
        if not blocks:
            return np.zeros(len(self._rest))
        return sum64_rows(np.concatenate(blocks, axis=1))
