"""The start-up probes of an engine: are its kernels admissible (NUMERICS 14.3), and do a library's
own threads keep subnormals and round to nearest (1.7)?

The factors are integers times powers of two, such that every sum of any of an element's terms is
exact in binary64. So each admissible kernel, whatever its order, gives the true product, bit for
bit. The powers differ between rows, between columns and along the contraction. So a kernel loses
bits if it computes in binary32 or less, splits into a few narrow digits, or adds blocks as
Strassen's algorithm does.

Each thread has a floating-point environment of its own, which only code in that thread can set.
The test of threads is a product in which every thread of the library has a share of the rows, so
that it covers all threads. Its elements are sums of two terms, chosen so that every other
environment gives another value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tallystick import _core
from tallystick.devices.environment import entries
from tallystick.errors import EnvironmentRefusedError
from tallystick.products.blas import threads_used

if TYPE_CHECKING:
    from tallystick.products.engines import ProductEngine


# --- kernels (14.3) -------------------------------------------------------------------------------
_BITS = 21  # bits of an operand: 2·21 + log2(512) < 53
# (M, K, N): vectors, thin and odd matrices, and some so large that a library changes its algorithm.
_SHAPES = ((1, 300, 1), (1, 512, 65), (67, 129, 1), (40, 257, 33), (520, 512, 544))
_ROWS = 4  # distinct rows of integers; the expected product needs no more
probed: set[tuple[type, str]] = set()


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
    if key not in probed:
        probe(engine)
        probed.add(key)


# --- threads (1.7) --------------------------------------------------------------------------------
Multiply = Callable[[np.ndarray, np.ndarray, np.ndarray], object]
# The size of a thread's share. OpenBLAS gives a product one thread for each 64³ terms, but with
# AVX-512 it computes one of up to 100³ terms in the calling thread, which shows nothing.
_OWN_ROWS, _TERMS, _COLUMNS = 128, 128, 128


def _power(exponent: int, high: int = 0) -> int:
    """The bits of the binary64 2^exponent, whose fraction begins with the bit `high`."""
    if exponent < -1022:
        return 1 << exponent + 1074
    return exponent + 1023 << 52 | high << 51


_MINUS = 1 << 63
_SMALL = -600  # a[i, last]; the factor b[last, j] makes up for this exponent
# Columns: b[0, j], b[last, j], and the element, as integers, so that no rounding enters them.
_KINDS = (
    (_power(0), _power(-54 - _SMALL), _power(0)),  # above 1: rounded upward?
    (_power(0), _power(-53 - _SMALL, 1), _power(0) + 1),  # rounded downward, or toward zero?
    (_MINUS | _power(0), _MINUS | _power(-54 - _SMALL), _MINUS | _power(0)),  # downward?
    (_power(-1060), 0, _power(-1060)),  # a subnormal operand
    (0, _power(-1060 - _SMALL), _power(-1060)),  # a subnormal product
)
_ROUNDINGS = 3  # the first kinds


@lru_cache(maxsize=8)
def _of_threads(threads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a and b, f64, and the bits that each row of their product must have, u64[N]."""
    a = np.zeros((_OWN_ROWS * threads, _TERMS))
    b = np.zeros((_TERMS, _COLUMNS))
    kinds = np.array(_KINDS, np.uint64)[np.arange(_COLUMNS) % len(_KINDS)]
    a.view(np.uint64)[:, 0] = _power(0)
    a.view(np.uint64)[:, -1] = _power(_SMALL)
    b.view(np.uint64)[0], b.view(np.uint64)[-1] = kinds[:, 0], kinds[:, 1]
    return a, b, kinds[:, 2]


def refuse_threads(library: str, rounds: bool) -> None:
    """Raise EnvironmentRefusedError for threads of `library` that do not round to nearest
    (`rounds`), or that flush subnormals."""
    how = "do not round to nearest" if rounds else "flush subnormals to zero"
    raise EnvironmentRefusedError(
        f"Threads of {library} {how}, and nobody else can set them (NUMERICS 1.7).",
        "A library built with -ffast-math, or torch.set_flush_denormal, may have done it: start "
        "without it, or use --threads 1.",
    )


def probe_products(library: str, multiply: Multiply, threads: int) -> None:
    """Raise EnvironmentRefusedError unless `multiply(a, b, out)`, f64, computes on threads that
    keep subnormals and round to nearest. Call it inside of `exact_environment`."""
    a, b, bits = _of_threads(threads)
    out = np.empty((len(a), _COLUMNS))  # a new array: another thread may probe at the same time
    with np.errstate(all="ignore"):
        multiply(a, b, out)
    wrong = np.any(out.view(np.uint64) != bits, axis=0)
    if wrong.any():
        kinds = np.flatnonzero(wrong) % len(_KINDS)
        refuse_threads(library, bool((kinds < _ROUNDINGS).any()))


class _Checked(threading.local):
    """The engine, threads and entry that this thread has checked last."""

    key: tuple[int, int, int] | None = None


_checked = _Checked()


def check_threads(engine: ProductEngine) -> None:
    """Call `probe_products` for an engine once after each entry of this thread: once a step.

    A single thread is the calling one, which this program can set. Raises EnvironmentRefusedError,
    which names the engine.
    """
    key = (id(engine), threads_used(int(_core.threads())), entries())
    if key != _checked.key and key[1] > 1:
        probe_products(f"{engine.name} (its BLAS)", engine.mm, key[1])
        _checked.key = key
