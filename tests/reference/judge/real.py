"""Pairs of a value and a bound, and the functions of binary64 (OPENING 10, 11)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

F64 = np.float64
C, F, W, T = (F64(2.0**k) for k in (-45, -42, -47, -1060))
T = F64(math.ldexp(1.0, -1060))
INF = F64(math.inf)
LN2 = F64(float.fromhex("0x1.62e42fefa39efp-1"))
HIGH = F64(float.fromhex("0x1.62e42fefa0000p-1"))
LOW = F64(float.fromhex("0x1.cf79abc9e3b39p-40"))
TAYLOR = [F64(1) / F64(math.factorial(n)) for n in range(27)]
PI = 0x3243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98EC4E6C89452821E638D01377


def poly(r: Any, c: list[Any]) -> Any:
    total = c[-1]
    for k in reversed(c[:-1]):
        total = total * r + k
    return total


def exp(x: Any) -> Any:
    if np.isnan(x):
        return x
    x = F64(min(max(x, F64(-800)), F64(800)))
    k = np.rint(x / LN2)
    r = (x - k * HIGH) - k * LOW
    return np.ldexp(poly(r, TAYLOR[:20]), int(k))


def expm1(x: Any) -> Any:
    if abs(x) < float.fromhex("0x1.6666666666666p-2"):
        return x * poly(x, TAYLOR[1:20])
    return exp(x) - F64(1)


def atanh2(s: Any) -> Any:
    return (F64(2) * s) * poly(s * s, [F64(1) / F64(n) for n in range(1, 48, 2)])


def log(x: Any) -> Any:
    if x == 0:
        return -INF
    if np.isnan(x) or x < 0:
        return F64(math.nan)
    if np.isinf(x):
        return x
    m, k = math.frexp(float(x))
    if m < float.fromhex("0x1.6a09e667f3bcdp-1"):
        m, k = 2 * m, k - 1
    f = F64(m) - F64(1)
    return F64(k) * HIGH + (atanh2(f / (F64(2) + f)) + F64(k) * LOW)


def log1p(x: Any) -> Any:
    if abs(x) < float.fromhex("0x1.999999999999ap-2"):
        return atanh2(x / (F64(2) + x))
    return log(F64(1) + x)


def tanh(x: Any) -> Any:
    if np.isnan(x):
        return x
    t = expm1(F64(min(F64(2) * abs(x), F64(80))))
    return np.copysign(t / (t + F64(2)), x)


def erf(x: Any) -> Any:
    if np.isnan(x):
        return x
    a = F64(min(abs(x), F64(6)))
    q = a * a
    term = total = a
    for k in range(1, 160):
        term = term * ((F64(2) * q) / F64(2 * k + 1))
        total = total + term
    value = (total * exp(-q)) * F64(float.fromhex("0x1.20dd750429b6dp+0"))
    return np.copysign(F64(min(value, F64(1))), x)


def _turn(x: Any, quarter: int) -> Any:
    if not np.isfinite(x):
        return F64(math.nan)
    if x == 0:
        return F64(1) if quarter else x
    half = PI // 2
    whole = math.floor(Fraction(float(x)) * 2**320)
    n = (2 * whole + half) // (2 * half)
    r = F64(float(Fraction(whole - n * half, 2**320))) if n else x
    j, z, total = (n + quarter) % 4, r * r, F64(0)
    if j % 2:
        for k in range(12, -1, -1):
            total = total * (-z) + TAYLOR[2 * k]
    else:
        for k in range(11, -1, -1):
            total = total * (-z) + TAYLOR[2 * k + 1]
        total = total * r
    return -total if j > 1 else total


class P:
    """A pair (10.1)."""

    def __init__(self, x: Any, e: Any = 0.0) -> None:
        self.x, self.e = F64(x), F64(e)

    def __neg__(self) -> P:
        return P(-self.x, self.e)

    def __add__(self, other: Any) -> P:
        b = of(other)
        return made(self.x + b.x, (self.e + b.e) + C * (abs(self.x) + abs(b.x)), self, b)

    def __sub__(self, other: Any) -> P:
        return self + (-of(other))

    def __mul__(self, other: Any) -> P:
        b = of(other)
        x = self.x * b.x
        t = T if self.x != 0 and b.x != 0 else F64(0)
        e = (((self.e * abs(b.x) + b.e * abs(self.x)) + self.e * b.e) + C * abs(x)) + t
        return made(x, e, self, b)

    def __radd__(self, other: Any) -> P:
        return of(other) + self

    def __rsub__(self, other: Any) -> P:
        return of(other) - self

    def __rmul__(self, other: Any) -> P:
        return of(other) * self

    def __rtruediv__(self, other: Any) -> P:
        return of(other) / self

    def __truediv__(self, other: Any) -> P:
        b = of(other)
        s, x = abs(b.x) - b.e, self.x / b.x
        t = T if self.x != 0 else F64(0)
        e = ((self.e + abs(x) * b.e) / s + C * abs(x)) + t if s > 0 else INF
        return made(x, e, self, b)


def of(v: Any) -> P:
    return v if isinstance(v, P) else P(v)


def widened(a: P, n: int) -> P:
    """10.5."""
    e = a.e + (F64(n + 16) * W) * abs(a.x)
    if np.isinf(a.x) and a.e == 0:
        e = F64(0)
    return P(a.x, INF if np.isnan(e) else e)


def made(x: Any, e: Any, *arguments: P) -> P:
    """10.4."""
    if np.isfinite(x):
        return P(x, INF if np.isnan(e) else e)
    if np.isnan(x):
        return P(x, INF)
    certain = any(np.isinf(a.x) and a.e == 0 for a in arguments)
    return P(x, 0 if certain else INF)


def root(a: P) -> P:
    x = np.sqrt(a.x)
    s = F64(0) if a.e == 0 else np.minimum(a.e / x, np.sqrt(a.e))
    return made(x, s + C * x, a)


def function(name: str, a: P) -> P:
    """10.3."""
    v, p, zero = a.x, a.e, F64(0)
    w = F64(2) * p if p < 1 else INF
    if name == "rsqrt":
        return of(1) / root(a)
    if name == "sqrt":
        return root(a)
    if name == "exp":
        x = exp(v)
        t = (T if np.isfinite(v) else zero) if p < 1 else INF
        return made(x, x * (w + F) + t, a)
    if name == "log":
        x, s = log(v), v - p
        return made(x, (p / s if s > 0 else INF) + F * abs(x), a)
    if name == "sigmoid":
        x = F64(1) / (F64(1) + exp(-v))
        return made(x, x * (w + F) + (zero if np.isinf(v) else T), a)
    if name in ("expm1", "log1p"):
        x = (expm1 if name == "expm1" else log1p)(v)
        return made(x, F * abs(x) + (T if v != 0 else zero), a)
    if name in ("sin", "cos"):
        x = _turn(v, int(name == "cos"))
    else:
        x = (tanh if name == "tanh" else erf)(v)
    factor = F64(1.25) if name == "erf" else F64(1)
    return made(x, (factor * p + F * abs(x)) + (T if x != 0 or v != 0 else zero), a)
