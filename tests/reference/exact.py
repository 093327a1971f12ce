"""Elementary functions and pow: the true value by mpmath, rounded once in integers (NUMERICS 5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import mpmath as mp
import numpy as np

from reference.floats import F32, NAN32

INF, NEG_INF, NAN = 0x7F800000, 0xFF800000, 0x7FC00000


def _pattern(x: float) -> int:
    return int(np.asarray(x, F32).view(np.uint32))


def _value(pattern: int) -> float:
    return float(np.uint32(pattern).view(np.float32))


def round_to_pattern(v: mp.mpf) -> int:
    """The bit pattern of RN32(v), v finite and not zero (1.2); −0 for what underflows below 0."""
    sign, man, exp, size = v._mpf_
    man = int(man)
    # The last kept bit: 24 bits, or the subnormal grid 2^-149.
    quantum = max(exp + size - 24, -149)
    drop = quantum - exp
    if drop <= 0:
        kept = man << -drop
    else:
        kept, rest, half = man >> drop, man & ((1 << drop) - 1), 1 << (drop - 1)
        if rest > half or (rest == half and kept & 1):
            kept += 1
    if kept == 1 << 24:
        kept, quantum = 1 << 23, quantum + 1
    # biased exponent: kept·2^quantum with bit 23 set is normal
    pattern = kept if kept < 1 << 23 else (kept - (1 << 23)) + ((quantum + 150) << 23)
    return (sign << 31) | min(pattern, INF)


def _decide(f: Callable[[], mp.mpf]) -> int:
    """RN32 of f(): both ends of its error interval must round alike, else more digits.

    A value that 600 bits cannot tell from a rounding boundary is that boundary: none of the
    functions here comes so close to one without being equal to it.
    """
    for precision in (120, 260, 600):
        with mp.workprec(precision + 60):
            v = f()
            if v == 0:
                raise ValueError("a zero of an elementary function must be a special case")
            slack = abs(v) * mp.mpf(2) ** -precision
            low, high = round_to_pattern(v - slack), round_to_pattern(v + slack)
        if low == high:
            return low
    with mp.workprec(500):
        return round_to_pattern(+v)


def _clamped(limit: float, f: Callable[[mp.mpf], mp.mpf]) -> Callable[[mp.mpf], mp.mpf]:
    """f, whose rounded value is the same for every |x| above `limit`; mpmath would overflow."""
    return lambda x: f(max(min(x, mp.mpf(limit)), mp.mpf(-limit)))


_TRUE: dict[str, Callable[[mp.mpf], mp.mpf]] = {
    "exp": _clamped(300, mp.exp),
    "exp2": _clamped(300, lambda x: mp.mpf(2) ** x),
    "expm1": _clamped(300, mp.expm1),
    "tanh": _clamped(60, mp.tanh),
    "erf": _clamped(8, mp.erf),
    "sigmoid": _clamped(300, lambda x: 1 / (1 + mp.exp(-x))),
    "sin": mp.sin,
    "cos": mp.cos,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log1p": mp.log1p,
}
ELEMENTARY = tuple(_TRUE)

# f(+0), f(-0), f(+inf), f(-inf) as patterns (5.3).
_ONE, _HALF, _ZERO, _NEG_ZERO = 0x3F800000, 0x3F000000, 0, 0x80000000
_ENDS = {
    "exp": (_ONE, _ONE, INF, _ZERO),
    "exp2": (_ONE, _ONE, INF, _ZERO),
    "expm1": (_ZERO, _NEG_ZERO, INF, 0xBF800000),
    "tanh": (_ZERO, _NEG_ZERO, _ONE, 0xBF800000),
    "erf": (_ZERO, _NEG_ZERO, _ONE, 0xBF800000),
    "sigmoid": (_HALF, _HALF, _ONE, _ZERO),
    "sin": (_ZERO, _NEG_ZERO, NAN, NAN),
    "cos": (_ONE, _ONE, NAN, NAN),
    "rsqrt": (INF, NEG_INF, _ZERO, NAN),
    "log": (NEG_INF, NEG_INF, INF, NAN),
    "log2": (NEG_INF, NEG_INF, INF, NAN),
    "log1p": (_ZERO, _NEG_ZERO, INF, NAN),
}


@cache
def elementary_pattern(name: str, pattern: int) -> int:
    """The bit pattern of name(x) for the bit pattern of x."""
    x = _value(pattern)
    if x != x:
        return NAN
    if x == 0 or math.isinf(x):
        return _ENDS[name][2 * math.isinf(x) + (math.copysign(1.0, x) < 0)]
    if x < 0 and name in ("log", "log2", "rsqrt"):
        return NAN
    if name == "log1p" and x <= -1:
        return NEG_INF if x == -1 else NAN
    if name in ("log", "log2") and x == 1:
        return 0
    if abs(x) < 2.0**-60 and name in ("sin", "tanh", "expm1", "log1p"):
        return pattern  # x(1 + d), |d| below 2^-60: nearer to x than to any neighbour's middle
    return _decide(lambda: _TRUE[name](mp.mpf(x)))


def elementary(name: str, x: np.ndarray) -> np.ndarray:
    """RN32(f(x)) of every element."""
    flat = np.asarray(x, F32).reshape(-1)
    values = np.where(np.isnan(flat), NAN32, flat.view(np.uint32))
    out = np.array([elementary_pattern(name, int(v)) for v in values], np.uint32)
    return out.view(F32).reshape(np.shape(x))


@cache
def pow_pattern(x_pattern: int, y_pattern: int) -> int:
    """x^y: IEEE-754's pow at the special points, else correctly rounded (5.8)."""
    x, y = _value(x_pattern), _value(y_pattern)
    if y == 0 or x == 1:
        return _ONE
    if x != x or y != y:
        return NAN
    whole = math.isinf(y) or y == math.floor(y)
    odd = whole and not math.isinf(y) and math.fmod(y, 2.0) != 0
    sign = 0x80000000 if odd and math.copysign(1.0, x) < 0 else 0
    if x == 0:
        return sign | (INF if y < 0 else 0)
    if math.isinf(y):
        if abs(x) == 1:
            return _ONE
        return INF if (abs(x) > 1) == (y > 0) else 0
    if math.isinf(x):
        return sign | (INF if y > 0 else 0)
    if x < 0 and not whole:
        return NAN
    size, magnitude = y * math.log2(abs(x)), abs(x)
    if magnitude == 1:
        return sign | _ONE
    if size > 200:
        return sign | INF
    if size < -200:
        return sign
    if abs(size) < 1e-12:
        return sign | _ONE  # |x^y - 1| is below 2^-39, a middle is 2^-25 away
    return sign | _decide(lambda: mp.power(mp.mpf(magnitude), mp.mpf(y)))


def power(x: np.ndarray, exponent: np.float32) -> np.ndarray:
    """RN32(x^exponent) of every element."""
    y = _pattern(float(exponent))
    flat = np.asarray(x, F32).reshape(-1).view(np.uint32)
    out = np.array([pow_pattern(int(v), y) for v in flat], np.uint32)
    return out.view(F32).reshape(np.shape(x))
