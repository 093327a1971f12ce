"""The engines that multiply in binary64: any admissible kernel (NUMERICS 14.3), numpy's BLAS by
default.

An engine may choose any order. It may not use narrower arithmetic or fast algorithms: the start-up
probe looks for these (probe.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import numpy as np

from tallystick import _core
from tallystick.products.blas import threads_limited
from tallystick.products.probe import check_engine, check_threads


class ProductEngine(Protocol):
    """Binary64 kernels that add the terms of 13.3, and zeros, in any tree."""

    @property
    def name(self) -> str:
        """The library and the order of this engine, for people."""
        ...

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        """out = a·b: f64 [M,K]·[K,N] or [B,M,K]·[B,K,N], of any strides, 0 included. `out` is
        C-contiguous and shares no memory with them."""
        ...

    def sums(self, x: np.ndarray) -> np.ndarray:
        """f64[R]: the sum of every row of f64[R,n], any strides."""
        ...


def _has_unit_stride(x: np.ndarray) -> bool:
    """True if BLAS takes the last two axes as they are."""
    rows, columns = x.strides[-2:]
    item = x.itemsize
    return (columns == item and rows >= x.shape[-1] * item) or (
        rows == item and columns >= x.shape[-2] * item
    )


class NumpyEngine:
    """numpy's matmul, which is its BLAS, on as many threads as the core uses."""

    name = "numpy"

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        # For operands that BLAS does not take, numpy has a plain loop: admissible, and very slow.
        a = a if _has_unit_stride(a) else np.ascontiguousarray(a)
        b = b if _has_unit_stride(b) else np.ascontiguousarray(b)
        # 13.4: a sum with an infinity or a NaN is no error.
        with np.errstate(all="ignore"), threads_limited(int(_core.threads())):
            np.matmul(a, b, out=out)

    def sums(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            total: np.ndarray = np.add.reduce(x, axis=1)
        return total


DEFAULT = NumpyEngine()
_engine: ContextVar[ProductEngine] = ContextVar("tallystick_product_engine", default=DEFAULT)


def current_engine() -> ProductEngine:
    """The engine in use here. The function probes it once a process, and numpy's threads once a
    step.

    Raises EnvironmentRefusedError, which names the engine where that is not admissible (NUMERICS
    14.3), or numpy where its threads flush subnormals or do not round to nearest (1.7).
    """
    engine = _engine.get()
    check_engine(engine)
    check_threads(DEFAULT)  # engines of other orders use its products too
    return engine


@contextmanager
def using(engine: ProductEngine) -> Iterator[ProductEngine]:
    """Within the block, this thread's products come from `engine`."""
    token = _engine.set(engine)
    try:
        yield engine
    finally:
        _engine.reset(token)
