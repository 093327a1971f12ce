"""Working memory of rounded operators: the size of a tile, and buffers for its binary64 values."""

from __future__ import annotations

import math
import threading

import numpy as np

from tallystick import _core

# The number of binary64 values that a tile may hold, operands and result: 48 MiB.
BUDGET = 6 << 20
# A longer contraction is added in parts of this many terms. An element's error grows with the
# length of the parts (pieces.depth_share), and every doubtful element is summed exactly.
DEPTH = 1024


class Scratch(threading.local):
    """Named buffers that grow and stay: fresh pages cost as much as the arithmetic on them.

    The next request for a name in this thread destroys the buffer's former contents.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, np.dtype], np.ndarray] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: type = np.float64) -> np.ndarray:
        """An uninitialised C-contiguous array."""
        key, size = (name, np.dtype(dtype)), math.prod(shape)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.size < size:
            self._buffers.pop(key, None)
            buffer = self._buffers[key] = np.empty(size, dtype)
        room: np.ndarray = buffer[:size].reshape(shape)
        return room


SCRATCH = Scratch()


def _widen(x: np.ndarray, wide: np.ndarray) -> None:
    """wide = x, C-contiguous, on the core's threads where x's rows have adjacent elements."""
    item = x.itemsize
    if x.ndim < 2 or x.size == 0 or x.strides[-1] != item:
        np.copyto(wide, x)
    elif x.ndim == 2:
        _core.widen_rows(x, wide)
    elif x.flags.c_contiguous:
        columns = x.shape[-1]
        _core.widen_rows(x.reshape(-1, columns), wide.reshape(-1, columns))
    else:
        np.copyto(wide, x)


def widened(name: str, x: np.ndarray) -> np.ndarray:
    """x in binary64 in the scratch buffer `name`. The last two axes have x's order in memory."""
    if x.ndim >= 2 and x.strides[-1] > x.strides[-2]:
        turned = SCRATCH.get(name, (*x.shape[:-2], x.shape[-1], x.shape[-2]))
        _widen(x.swapaxes(-1, -2), turned)
        back: np.ndarray = turned.swapaxes(-1, -2)
        return back
    wide = SCRATCH.get(name, x.shape)
    _widen(x, wide)
    return wide


def product_tiles(m: int, n: int, k: int) -> tuple[int, int, int]:
    """Sizes (m, n, k) of a tile of a product [m,k]·[k,n] whose binary64 values fit BUDGET."""
    mt, nt, kt = max(m, 1), max(n, 1), min(max(k, 1), DEPTH)
    while mt * nt * (2 if kt < k else 1) + (mt + nt) * kt > BUDGET and max(mt, nt, kt) > 64:
        largest = max(mt, nt, kt)
        if kt == largest:
            kt = (kt + 1) // 2
        elif nt == largest:
            nt = (nt + 1) // 2
        else:
            mt = (mt + 1) // 2
    return mt, nt, kt


def ranges(size: int, step: int) -> list[tuple[int, int]]:
    """The range [0, size) in parts of `step`."""
    return [(begin, min(begin + step, size)) for begin in range(0, size, step)]
