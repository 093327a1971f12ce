"""Elementary functions in binary64 from IEEE-754 operations alone (NUMERICS 14.11).

Every machine gets the same bits: numpy's +, -, *, /, sqrt, rint, frexp and ldexp are exact or
correctly rounded, and this module uses no other operation. Relative errors are below 2^-46. That is
far below 2^-42, the allowance of a published kernel for such a function.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray

LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_LN2_HIGH = float.fromhex("0x1.62e42fefa0000p-1")  # times an exponent it is exact
_LN2_LOW = float.fromhex("0x1.cf79abc9e3b39p-40")
_TAYLOR = [1.0 / math.factorial(n) for n in range(20)]
_ERF_TERMS = 160  # of the series below at 6, beyond which erf is 1 to 2^-55
_ERF_END = 6.0
_PI_BITS = 320  # a binary32 argument has at most 128 bits before the point


def exp(x: Array) -> Array:
    """e^x."""
    held = np.clip(np.where(np.isnan(x), 0.0, x), -800.0, 800.0)
    k = np.rint(held / LN2)
    r = (held - k * _LN2_HIGH) - k * _LN2_LOW
    found = np.ldexp(_series(r, _TAYLOR), k.astype(np.int32))
    return np.where(np.isnan(x), np.nan, found)


def expm1(x: Array) -> Array:
    """e^x - 1, accurate near 0."""
    near = np.abs(x) < 0.35
    r = np.where(near, x, 0.0)
    return np.where(near, r * _series(r, _TAYLOR[1:]), exp(x) - 1.0)


def log(x: Array) -> Array:
    """The natural logarithm."""
    fine = (x > 0) & np.isfinite(x)
    m, e = np.frexp(np.where(fine, x, 1.0))
    low = m < math.sqrt(0.5)
    m, e = np.where(low, m * 2, m), (e - low).astype(np.float64)
    f = m - 1.0
    found = e * _LN2_HIGH + (_atanh2(f / (2.0 + f)) + e * _LN2_LOW)
    poles = np.where(x == 0, -np.inf, np.where(x == np.inf, np.inf, np.nan))
    return np.where(fine, found, poles)


def log1p(x: Array) -> Array:
    """log(1 + x), accurate near 0."""
    near = np.abs(x) < 0.4
    r = np.where(near, x, 0.0)
    return np.where(near, _atanh2(r / (2.0 + r)), log(1.0 + x))


def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    t = expm1(np.minimum(2.0 * np.abs(x), 80.0))
    found = np.where(np.isnan(x), np.nan, t / (t + 2.0))
    signed: Array = np.copysign(found, x)
    return signed


def erf(x: Array) -> Array:
    """The error function: 2/sqrt(pi) exp(-x^2) sum of 2^k x^(2k+1) / (1 3 5 ... (2k+1))."""
    a = np.minimum(np.where(np.isnan(x), 0.0, np.abs(x)), _ERF_END)
    square, term, total = a * a, a, a
    for k in range(1, _ERF_TERMS):
        term = term * (2.0 * square / (2 * k + 1))
        total = total + term
    found = np.minimum(total * exp(-square) * (2.0 / math.sqrt(math.pi)), 1.0)
    signed: Array = np.copysign(np.where(np.isnan(x), np.nan, found), x)
    return signed


def sine(x: Array) -> Array:
    """sin(x) for every finite binary32 number and other numbers of that size."""
    return _circular(x, 0)


def cosine(x: Array) -> Array:
    """cos(x), likewise."""
    return _circular(x, 1)


def _series(r: Array, factors: list[float]) -> Array:
    total = np.full(r.shape, factors[-1])
    for factor in reversed(factors[:-1]):
        total = total * r + factor
    return total


def _atanh2(s: Array) -> Array:
    """2 atanh(s), |s| <= 1/4."""
    found: Array = 2.0 * s * _series(s * s, [1.0 / (2 * k + 1) for k in range(24)])
    return found


@cache
def _pi() -> int:
    """pi * 2^_PI_BITS, rounded down by some units (Machin's formula)."""

    def arctangent_of_inverse(n: int) -> int:
        total, power, k, sign = 0, (1 << (_PI_BITS + 32)) // n, 1, 1
        while power:
            total += sign * (power // k)
            power, k, sign = power // (n * n), k + 2, -sign
        return total

    return (16 * arctangent_of_inverse(5) - 4 * arctangent_of_inverse(239)) >> 32


def _circular(x: Array, turned: int) -> Array:
    flat = [_circular_one(float(v), turned) for v in np.asarray(x).reshape(-1)]
    return np.array(flat, np.float64).reshape(np.shape(x))


def _circular_one(x: float, turned: int) -> float:
    if not math.isfinite(x):
        return math.nan
    if x == 0:
        return 1.0 if turned else x
    over, under = x.as_integer_ratio()
    scaled = (over << _PI_BITS) // under
    quarter = _pi() >> 1
    n = (2 * scaled + quarter) // (2 * quarter)
    rest = scaled - n * quarter
    r = rest / (1 << _PI_BITS) if n else x  # an int's true division is correctly rounded
    kind = (n + turned) % 4
    z, total = r * r, 0.0
    for k in range(12 if kind % 2 else 11, -1, -1):
        total = total * -z + _TAYLOR_LONG[2 * k + (0 if kind % 2 else 1)]
    value: Any = total if kind % 2 else total * r
    return float(-value if kind >= 2 else value)


_TAYLOR_LONG = [1.0 / math.factorial(n) for n in range(26)]
