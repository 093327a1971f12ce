"""Real numbers known to within a bound: binary64 values with a bound on a kernel's deviation.

Theory of operation (NUMERICS 14.11). A published kernel computes an operator's clause in the real
numbers by any sane sequence of binary64 operations. The opening rules are written in numpy's
operators, so they run on an `Approx` as they do on binary32 numbers. `value` is the micro-graph's
result by IEEE-754 operations, without any rounding to binary32. `error` is a generous bound on the
distance of such a kernel's result from it. Both are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.opening import real_functions as f
from tallystick.opening.quantity import REAL, Index, Source

Array = np.ndarray

OPERATION = 2.0**-45  # of +, -, *, / and sqrt, relative to their operands: 2^8 times their rounding
FUNCTION = 2.0**-42  # of an elementary function
PER_TERM = 2.0**-47  # of a sum, for each of its terms, relative to the terms' magnitudes
VANISHED = 2.0**-1060  # the error of an underflow


class Approx:
    """Arrays `value` and `error` of one shape; see the module."""

    __array_ufunc__ = None  # numpy's arrays and scalars leave operations with one to it
    __slots__ = ("error", "value")

    def __init__(self, value: Any, error: Any = 0.0) -> None:
        self.value: Array = np.asarray(value, np.float64)
        with np.errstate(all="ignore"):
            bound = np.where(np.isnan(error), np.inf, error)
        self.error: Array = np.broadcast_to(bound, self.value.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, at: Any) -> Approx:
        return Approx(self.value[at], self.error[at])

    def reshape(self, *shape: Any) -> Approx:
        return Approx(self.value.reshape(*shape), self.error.reshape(*shape))

    def astype(self, _dtype: Any) -> Approx:
        """This same number, because no intermediate is rounded."""
        return self

    def exactly(self) -> Array:
        """The values, where they are exact ones of operands."""
        assert not self.error.any()
        return self.value

    def __neg__(self) -> Approx:
        return Approx(-self.value, self.error)

    def __add__(self, other: Any) -> Approx:
        b = real(other)
        with np.errstate(all="ignore"):
            value = self.value + b.value
            # Relative to the terms, not to the sum: a kernel may multiply out first.
            size = np.abs(self.value) + np.abs(b.value)
            error = self.error + b.error + OPERATION * size
        return _made(value, error, self, b)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Approx:
        return self + -real(other)

    def __rsub__(self, other: Any) -> Approx:
        return real(other) + -self

    def __mul__(self, other: Any) -> Approx:
        b = real(other)
        with np.errstate(all="ignore"):
            value = self.value * b.value
            error = self.error * np.abs(b.value) + b.error * np.abs(self.value)
            error = error + self.error * b.error + OPERATION * np.abs(value)
            error = error + np.where((self.value != 0) & (b.value != 0), VANISHED, 0.0)
        return _made(value, error, self, b)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Approx:
        b = real(other)
        with np.errstate(all="ignore"):
            value = self.value / b.value
            size = np.abs(b.value) - b.error
            error = (self.error + np.abs(value) * b.error) / size + OPERATION * np.abs(value)
            error = error + np.where(self.value != 0, VANISHED, 0.0)
            error = np.where(size > 0, error, np.inf)
        return _made(value, error, self, b)

    def __rtruediv__(self, other: Any) -> Approx:
        return real(other) / self


def real(x: Any) -> Approx:
    """x as an Approx; any other number is exact."""
    return x if isinstance(x, Approx) else Approx(x)


def _made(value: Array, error: Array, *of: Approx) -> Approx:
    """An infinity from infinite operands is certain. One from finite operands, or a NaN, is not."""
    certain = np.zeros(value.shape, np.bool_)
    for x in of:
        certain = certain | (np.isinf(x.value) & (x.error == 0))
    limit = np.where(np.isinf(value) & certain, 0.0, np.inf)
    return Approx(value, np.where(np.isfinite(value), error, limit))


def pick(mask: Any, a: Any, b: Any) -> Approx:
    """a where mask, else b."""
    a, b = real(a), real(b)
    return Approx(np.where(mask, a.value, b.value), np.where(mask, a.error, b.error))


def sqrt(x: Any) -> Approx:
    """The square root."""
    x = real(x)
    with np.errstate(all="ignore"):
        value = np.sqrt(x.value)
        # |sqrt(a) - sqrt(b)| is |a - b| / (sqrt(a) + sqrt(b)), and at most the root of |a - b|.
        slope = np.where(x.error == 0, 0.0, np.minimum(x.error / value, np.sqrt(x.error)))
    return _made(value, slope + OPERATION * value, x)


def exp(x: Any) -> Approx:
    """e^x."""
    x = real(x)
    with np.errstate(all="ignore"):
        value = f.exp(x.value)
        spread = np.where(x.error < 1, 2 * x.error, np.inf)
        vanished = np.where(np.isfinite(x.value), VANISHED, 0.0)
        error = value * (spread + FUNCTION) + np.where(x.error < 1, vanished, np.inf)
    return _made(value, error, x)


def log(x: Any) -> Approx:
    """The natural logarithm."""
    x = real(x)
    with np.errstate(all="ignore"):
        value, room = f.log(x.value), x.value - x.error
        error = np.where(room > 0, x.error / room, np.inf) + FUNCTION * np.abs(value)
    return _made(value, error, x)


def smooth(function: Callable[[Array], Array], slope: float) -> Callable[[Any], Approx]:
    """A function whose slope is nowhere steeper than `slope`."""

    def of(x: Any) -> Approx:
        x = real(x)
        with np.errstate(all="ignore"):
            value = function(x.value)
            vanished = np.where((value != 0) | (x.value != 0), VANISHED, 0.0)
            error = slope * x.error + FUNCTION * np.abs(value) + vanished
        return _made(value, error, x)

    return of


tanh = smooth(f.tanh, 1.0)
erf = smooth(f.erf, 1.25)
sine = smooth(f.sine, 1.0)
cosine = smooth(f.cosine, 1.0)


def _exact_argument(function: Callable[[Array], Array]) -> Callable[[Any], Approx]:
    """A function of an operand itself."""

    def of(x: Any) -> Approx:
        at = real(x).exactly()
        with np.errstate(all="ignore"):
            value = function(at)
            error = FUNCTION * np.abs(value) + np.where(at != 0, VANISHED, 0.0)
        return _made(value, error, real(x))

    return of


expm1 = _exact_argument(f.expm1)
log1p = _exact_argument(f.log1p)


def sigmoid(x: Any) -> Approx:
    """1 / (1 + e^-x)."""
    with np.errstate(all="ignore"):
        x = real(x)
        value = 1.0 / (1.0 + f.exp(-x.value))
        spread = np.where(x.error < 1, 2 * x.error, np.inf)
        error = value * (spread + FUNCTION) + np.where(np.isinf(x.value), 0.0, VANISHED)
    return _made(value, error, x)


def rsqrt(x: Any) -> Approx:
    """1 / sqrt(x)."""
    return 1.0 / sqrt(x)


def widened(x: Approx, count: int) -> Approx:
    """Terms of a sum of `count` terms, in any order of additions."""
    with np.errstate(all="ignore"):
        error = x.error + (count + 16) * PER_TERM * np.abs(x.value)
    return Approx(x.value, np.where(np.isinf(x.value) & (x.error == 0), 0.0, error))


@dataclass(frozen=True)
class RealSource:
    """Operands' elements as exact real numbers; integers and bools as they are."""

    source: Source

    def read(self, operand: int, flat: Index) -> Any:
        found = self.source.read(operand, flat)
        return Approx(found) if found.dtype.kind == "f" else found


# -- as statements -----------------------------------------------------------------------------
def packed(x: Any) -> Array:
    """REAL array of x; a NaN is the canonical one."""
    x = real(x)
    found = np.empty(x.shape, REAL)
    found["x"] = np.where(np.isnan(x.value), np.nan, x.value)
    found["e"] = x.error
    return found


def unpacked(stated: Any) -> Approx:
    """An Approx as a party stated it. A negative or NaN error becomes infinite."""
    row = np.asarray(stated)
    with np.errstate(all="ignore"):
        return Approx(row["x"], np.where(row["e"] >= 0, row["e"], np.inf))
