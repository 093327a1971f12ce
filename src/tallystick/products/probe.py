"""The start-up probe, which tests whether an engine's kernels are admissible (NUMERICS 14.3).

The factors are integers times powers of two, such that every sum of any of an element's terms is
exact in binary64. So each admissible kernel, whatever its order, gives the true product, bit for
bit. The powers differ between rows, between columns and along the contraction. So a kernel loses
bits if it computes in binary32 or less, splits into a few narrow digits, or adds blocks as
Strassen's algorithm does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tallystick.errors import EnvironmentRefusedError

if TYPE_CHECKING:
    from tallystick.products.engines import ProductEngine

_BITS = 21  # bits of an operand: 2·21 + log2(512) < 53
# (M, K, N): vectors, thin and odd matrices, and some so large that a library changes its algorithm.
_SHAPES = ((1, 300, 1), (1, 512, 65), (67, 129, 1), (40, 257, 33), (520, 512, 544))
_ROWS = 4  # distinct rows of integers; the expected product needs no more
_probed: set[tuple[type, str]] = set()


def _operands(m: int, k: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a [m,k], b [k,n] and their exact product."""
    rng = np.random.default_rng(m * 1_000_003 + k * 1009 + n + seed)
    limit = 1 << _BITS
    base = rng.integers(-limit, limit, (_ROWS, k))
    right = rng.integers(-limit, limit, (k, n))
    along, rows, columns = (rng.integers(-30, 31, size) for size in (k, m, n))
    which = np.arange(m) % _ROWS
    a = np.ldexp(base[which].astype(np.float64), rows[:, None] + along)
    b = np.ldexp(right.astype(np.float64), columns - along[:, None])
    exact = np.ldexp((base @ right)[which].astype(np.float64), rows[:, None] + columns)
    return a, b, exact


def _refuse(engine: ProductEngine, what: str) -> None:
    raise EnvironmentRefusedError(
        f"{engine.name} does not {what} in plain binary64: a kernel of it works with fewer bits, "
        "or with a fast algorithm (NUMERICS 14.3).",
        "Switch off emulated or reduced precision in that library, or use another one.",
    )


def probe(engine: ProductEngine) -> None:
    """Raise EnvironmentRefusedError, which names the engine, unless its kernels are admissible."""
    for m, k, n in _SHAPES:
        a, b, exact = _operands(m, k, n)
        out = np.empty((m, n))
        engine.mm(a, b, out)
        turned = np.empty((m, n))
        engine.mm(np.asfortranarray(a), np.asfortranarray(b), turned)
        if not (np.array_equal(out, exact) and np.array_equal(turned, exact)):
            _refuse(engine, "multiply matrices")
    parts = [_operands(24, 64, 40, seed) for seed in range(3)]
    batch = np.empty((3, 24, 40))
    engine.mm(np.stack([p[0] for p in parts]), np.stack([p[1] for p in parts]), batch)
    if not np.array_equal(batch, np.stack([p[2] for p in parts])):
        _refuse(engine, "multiply batches of matrices")
    terms = np.random.default_rng(1).integers(-(1 << 42), 1 << 42, (3, 1000))
    rows = np.array([[0], [60], [-60]])
    x = np.ldexp(terms.astype(np.float64), rows)
    expected = np.ldexp(terms.sum(axis=1).astype(np.float64), rows[:, 0])
    for form in (x, np.asfortranarray(x)):
        if not np.array_equal(engine.sums(form), expected):
            _refuse(engine, "add")


def check_engine(engine: ProductEngine) -> None:
    """Call `probe` once for each process and engine."""
    key = (type(engine), engine.name)
    if key not in _probed:
        probe(engine)
        _probed.add(key)
