"""log and rev of Optimistic Verifiable Training, written down as the paper has them.

Algorithms 1 and 4 and the function `rev`, one element at a time, on fractions: slow, and with no
idea shared with the kernels but the clause (NUMERICS 14.9).
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction


def bits_of(value: float) -> int:
    """The binary32 encoding of a number that is one."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def value_of(bits: int) -> float:
    """The binary32 number with this encoding."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def magnitude(index: int, bits: int) -> Fraction:
    """The grid's `index`-th number from zero on; the first one beyond it stands for infinity."""
    encoding = index << (32 - bits)
    exponent, mantissa = encoding >> 23, encoding & 0x7FFFFF
    if exponent == 0:
        return Fraction(mantissa, 2**149)
    return Fraction(mantissa + 2**23) * Fraction(2) ** (exponent - 150)


def rnd(x: float, bits: int) -> float:
    """x to the nearest float with zeros in the last 32 - bits places, ties to even."""
    if math.isnan(x) or math.isinf(x):
        return x
    size, low, high = abs(Fraction(x)), 0, 0x7F800000 >> (32 - bits)
    if size >= magnitude(high, bits):
        return math.copysign(math.inf, x)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if magnitude(middle, bits) <= size else (low, middle)
    below, above = size - magnitude(low, bits), magnitude(high, bits) - size
    index = low if below < above or (below == above and low % 2 == 0) else high
    return math.copysign(value_of(index << (32 - bits)), x)


def exponent(x: float, decimal: bool) -> Fraction:
    """exp of Algorithm 1: the power of two, or of ten, at most |x|."""
    size = abs(Fraction(x))
    if decimal:
        # The clause's powers are binary64 numbers.
        return Fraction(max(p for p in (float(f"1e{k}") for k in range(-324, 309)) if p <= size))
    power = Fraction(2) ** (math.frexp(x)[1] - 1)
    assert power <= size < 2 * power
    return power


def log(x: float, bits: int, threshold: int, decimal: bool) -> int:
    """Algorithm 1, tau being threshold / 2^40."""
    rounded = rnd(x, bits)
    if x == rounded or math.isnan(x):
        return 1
    limit = exponent(x, decimal) * Fraction(threshold, 2**40)
    if decimal:
        limit = Fraction(float(exponent(x, True)) * (threshold / 2**40))
    far = math.isinf(rounded) or abs(Fraction(x) - Fraction(rounded)) > limit
    if far and x < rounded:
        return 2
    if far and x > rounded:
        return 0
    return 1


def neighbour(value: float, bits: int, up: bool) -> float:
    """nextafter on the grid."""
    step, encoding = 1 << (32 - bits), bits_of(value)
    if value == 0:
        return value_of(step if up else 0x80000000 | step)
    return value_of(encoding + step if (value > 0) == up else encoding - step)


def rev(x: float, bits: int, entry: int) -> float:
    """rev of section 5.2."""
    rounded = rnd(x, bits)
    if x < rounded and entry == 0:
        return neighbour(rounded, bits, up=False)
    if x > rounded and entry == 2:
        return neighbour(rounded, bits, up=True)
    return rounded


def threshold(pairs: list[tuple[float, float]], bits: int, decimal: bool) -> Fraction:
    """Algorithm 4 over outputs (y1, y2) of two kinds of hardware, within 2^-60 of its tau.

    The exponent is that of the output, as in Algorithm 1; taken of p_i itself, as line 24 reads,
    no p_i could ever fail.
    """
    found: list[tuple[Fraction, Fraction]] = []
    for y1, y2 in pairs:
        r1, r2 = rnd(y1, bits), rnd(y2, bits)
        opposite = (y1 > r1 and y2 < r2) or (y1 < r1 and y2 > r2)
        if r1 != r2 and opposite:
            found += [
                (abs(Fraction(y) - Fraction(r)), exponent(y, decimal))
                for y, r in ((y1, r1), (y2, r2))
            ]
    lower, upper = Fraction(1, 2**25), Fraction(1, 2) * Fraction(2) ** (9 - bits)
    for _ in range(60):
        tau = (lower + upper) / 2
        if all(p >= power * tau for p, power in found):
            lower = tau
        else:
            upper = tau
    return tau
