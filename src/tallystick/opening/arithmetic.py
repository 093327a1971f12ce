"""Binary32 arithmetic on a handful of numbers for opening rules, bit for bit the contract's.

numpy's own +, -, *, / and sqrt on float32 arrays are IEEE-754 operations (NUMERICS 1.3). This
module has the operations that numpy lacks: canonical NaN (1.5), a chunk of a DOT (2.1).
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tallystick.kernels import elements
from tallystick.kernels.evaluate import evaluate
from tallystick.opening import approx
from tallystick.opening.approx import Approx
from tallystick.opening.quantity import Array


def canonical(x: Any) -> Array:
    """`x` as f32 or f64 array with every NaN the canonical one (NUMERICS 1.5)."""
    return cast(Array, x) if isinstance(x, Approx) else elements.canonical(x)


def accumulated(state: Any, added: Any, count: int) -> Any:
    """state + added[0] + added[1] + ..., one after the other; `count` additions in all."""
    if isinstance(state, Approx) or isinstance(added, Approx):
        state, added = approx.real(state), approx.widened(approx.real(added), count)
        values = np.append(state.value, added.value)
        errors = np.append(state.error, added.error)
        return Approx(np.add.accumulate(values)[-1], np.add.accumulate(errors)[-1])
    return np.add.accumulate(np.append(state, added).astype(np.float32))[-1]


def started(state: Any, count: int) -> Any:
    """The start of `count` additions. It is added too, so it gets their bound."""
    return approx.widened(state, count) if isinstance(state, Approx) else state


def dot_chunk(a: Array, b: Array) -> np.float32:
    """The partial of one chunk, at most 128 terms (NUMERICS 2.1)."""
    row = np.ascontiguousarray(a, dtype=np.float32).reshape(1, -1)
    column = np.ascontiguousarray(b, dtype=np.float32).reshape(-1, 1)
    return cast(np.float32, np.asarray(evaluate("aten.mm", row, column))[0, 0])


def dot_partials(a: Array, b: Array) -> Array:
    """Partials of several whole chunks: a, b are (chunks, CHUNK) arrays (NUMERICS 2.1)."""
    left = np.ascontiguousarray(a, dtype=np.float32)[:, None, :]
    right = np.ascontiguousarray(b, dtype=np.float32)[:, :, None]
    return cast(Array, np.asarray(evaluate("aten.bmm", left, right)).reshape(-1))
