"""The ways to multiply blocks of integers exactly (NUMERICS 17.8). Both give the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from tallystick import _core
from tallystick.errors import UsageError
from tallystick.products import engines as blas
from tallystick.products.tiles import widened

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
