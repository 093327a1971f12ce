"""Groups of elements as integers, the ways to multiply blocks of them exactly (both give the same
bits), and the totals of blocks (NUMERICS 17.2 to 17.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from tallystick import _core
from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.errors import UsageError
from tallystick.products import engines as blas
from tallystick.products.tiles import SCRATCH, widened

# --- ways to multiply (17.8) ----------------------------------------------------------------------
# out f64[G,M,N] = the sums of a f32[G,M,k] times b f32[G,N,k], integers of B bits; k is at most a
# block's length.
Multiply = Callable[[np.ndarray, np.ndarray, int, np.ndarray], None]


def _binary64(a: np.ndarray, b: np.ndarray, _: int, out: np.ndarray) -> None:
    blas.current_engine().mm(widened("a", a), widened("b", b).swapaxes(1, 2), out)


def _digits(a: np.ndarray, b: np.ndarray, width: int, out: np.ndarray) -> None:
    _core.exact_products(a, b, width, out)


ENGINES: dict[str, Multiply] = {"binary64": _binary64, "digits": _digits}
# benchmarks/NOTES.md: one product of digits is faster than one of binary64, four or nine are not.
_FASTEST = {8: "digits", 15: "binary64", 22: "binary64"}
_chosen: ContextVar[str | None] = ContextVar("tallystick_exact_engine", default=None)


def multiply(a: np.ndarray, b: np.ndarray, width: int, out: np.ndarray) -> None:
    """out f64[G,M,N] = the exact sums of a f32[G,M,k] times b f32[G,N,k].

    Raises EnvironmentRefusedError where numpy's BLAS is chosen and is not admissible.
    """
    ENGINES[_chosen.get() or _FASTEST[width]](a, b, width, out)


def prepare(width: int) -> None:
    """Check numpy's BLAS, if products of B = `width` come from it here.

    Raises EnvironmentRefusedError where it is not admissible (14.3), or its threads compute in
    another floating-point environment (1.7).
    """
    if (_chosen.get() or _FASTEST[width]) == "binary64":
        blas.current_engine()


@contextmanager
def using(name: str) -> Iterator[None]:
    """Within the block, this thread multiplies by engine `name`. Raises UsageError."""
    if name not in ENGINES:
        raise UsageError(f"There is no exact engine {name[:40]!r}.", f"Use {', '.join(ENGINES)}.")
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


# --- groups and blocks (17.2 to 17.7) -------------------------------------------------------------
_INFINITY = 0x7F800000


@dataclass(frozen=True)
class Integers:
    """m(x) of a matrix x f32[R,n] whose rows are groups of `segment` elements (17.3, 17.4).

    m: f32[R,n], integers. mu: u32[R,S], the bits of the groups' largest magnitudes.
    """

    m: np.ndarray
    mu: np.ndarray

    @property
    def unruly(self) -> np.ndarray:
        """bool[R]: rows with an element that is not finite (17.7)."""
        found: np.ndarray = np.any(self.mu >= _INFINITY, axis=1)
        return found


def integers_of(x: np.ndarray, segment: int, width: int, segments: int = 0) -> Integers:
    """The integers of x f32[R,n], any strides, in groups of `segment` elements of a row.

    `segments` is their number where n may be 0: a group of no elements has the magnitude 0 (17.4).
    """
    rows, n = x.shape
    m = np.empty((rows, n), np.float32)
    if n == 0:
        return Integers(m, np.zeros((rows, segments), np.uint32))
    mu = np.empty((rows, -(-n // segment)), np.uint32)
    _core.exact_integers(x, segment, width, mu, m)
    return Integers(m, mu)


def blocks(length: int, segment: int, width: int) -> Iterator[tuple[int, int, int]]:
    """(segment, begin, end) of the blocks of `length` index values, `segment` a segment (17.2)."""
    longest = BLOCK_LENGTHS[width]
    for number, start in enumerate(range(0, length, segment)):
        stop = min(start + segment, length)
        for begin in range(start, stop, longest):
            yield number, begin, min(begin + longest, stop)


# a and b f32[G,M|N,end-begin], and their groups' mu u32[G,M|N], of (segment, begin, end).
Factors = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Parts = Callable[[int, int, int], Factors]


def dots(
    shape: tuple[int, int, int], length: int, segment: int, width: int, parts: Parts
) -> np.ndarray:
    """f32[G,M,N]: the DOTs of 17.6 whose blocks `parts` gives; groups that are not finite count as
    zeros."""
    out = np.zeros(shape, np.float32)
    if length == 0 or out.size == 0:
        return out
    total, w = SCRATCH.get("total", shape), SCRATCH.get("w", shape)
    for at, (number, begin, end) in enumerate(blocks(length, segment, width)):
        a, b, mu_a, mu_b = parts(number, begin, end)
        multiply(a, b, width, w)
        _core.exact_add(
            w, np.ascontiguousarray(mu_a), np.ascontiguousarray(mu_b), width, at == 0, total
        )
    _core.exact_round(total.reshape(-1), out.reshape(-1))
    return out
