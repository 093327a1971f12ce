"""The primitives of values, on bits, in exact integers and fractions (NUMERICS 1, 5, 10).

Written from the text alone: it reads no table of operators, and computes with no float. A number of
dtype f32 or f64 is decoded into a sign and a fraction, and what is computed is rounded here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from reference.exact import ELEMENTARY, elementary_pattern, pow_pattern

WIDTH = {"f32": 32, "f64": 64, "i64": 64, "i32": 32, "u8": 8, "bool": 8, "bf16": 16, "f16": 16}
# Bits of a significand, and the exponent of the smallest subnormal number (IEEE-754).
_DIGITS = {"f32": 24, "f64": 53, "bf16": 8, "f16": 11}
_LEAST = {"f32": -149, "f64": -1074, "bf16": -133, "f16": -24}


@dataclass(frozen=True)
class Float:
    """`what` is "finite", "infinite" or "nan"; `size` is the magnitude."""

    what: str
    negative: bool
    size: Fraction = Fraction(0)

    @property
    def value(self) -> Fraction:
        return -self.size if self.negative else self.size


NAN = Float("nan", False)


def infinite(negative: bool) -> Float:
    return Float("infinite", negative)


def zero(negative: bool) -> Float:
    return Float("finite", negative)


def decoded(bits: int, dtype: str) -> Float:
    """The number of these bits."""
    digits, width = _DIGITS[dtype], WIDTH[dtype]
    negative, rest = bool(bits >> (width - 1)), bits & ((1 << (width - 1)) - 1)
    exponent, fraction = rest >> (digits - 1), rest & ((1 << (digits - 1)) - 1)
    if exponent == (1 << (width - digits)) - 1:
        return NAN if fraction else infinite(negative)
    if exponent:
        fraction |= 1 << (digits - 1)
    power = _LEAST[dtype] + max(exponent, 1) - 1
    return Float("finite", negative, Fraction(fraction) * Fraction(2) ** power)


def encoded(x: Float, dtype: str) -> int:
    """The bits of RN(x) (1.2); the canonical NaN (1.5)."""
    digits, width = _DIGITS[dtype], WIDTH[dtype]
    top = ((1 << (width - digits)) - 1) << (digits - 1)
    if x.what == "nan":
        return top | 1 << (digits - 2)
    sign = int(x.negative) << (width - 1)
    return sign | (top if x.what == "infinite" else min(_magnitude(x.size, dtype), top))


def _magnitude(size: Fraction, dtype: str) -> int:
    """The bits of the nearest number, ties to even; beyond the largest one they are infinity's
    or more."""
    if size == 0:
        return 0
    digits, least = _DIGITS[dtype], _LEAST[dtype]
    above = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** above > size:
        above -= 1  # now 2^above <= size < 2^(above + 1)
    quantum = max(above - digits + 1, least)
    exact = size / Fraction(2) ** quantum
    kept, rest = exact.numerator // exact.denominator, exact - math.floor(exact)
    kept += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and kept & 1 == 1)
    # A carry out of the significand goes into the exponent.
    return ((quantum - least) << (digits - 1)) + kept


def _of(value: Fraction, negative_zero: bool) -> Float:
    return Float("finite", value < 0, abs(value)) if value else zero(negative_zero)


# -- 1.3, 1.4 --------------------------------------------------------------------------------------
def add(a: Float, b: Float) -> Float:
    if "nan" in (a.what, b.what):
        return NAN
    if a.what == b.what == "infinite":
        return a if a.negative == b.negative else NAN
    if "infinite" in (a.what, b.what):
        return a if a.what == "infinite" else b
    return _of(a.value + b.value, a.negative and b.negative)


def neg(x: Float) -> Float:
    return Float(x.what, not x.negative, x.size)


def sub(a: Float, b: Float) -> Float:
    return add(a, neg(b))


def mul(a: Float, b: Float) -> Float:
    negative = a.negative != b.negative
    if "nan" in (a.what, b.what):
        return NAN
    if "infinite" in (a.what, b.what):
        none = any(x.what == "finite" and x.size == 0 for x in (a, b))
        return NAN if none else infinite(negative)
    return Float("finite", negative, a.size * b.size)


def div(a: Float, b: Float) -> Float:
    negative = a.negative != b.negative
    if "nan" in (a.what, b.what) or (a.what == b.what == "infinite"):
        return NAN
    if a.what == "infinite":
        return infinite(negative)
    if b.what == "infinite":
        return zero(negative)
    if b.size == 0:
        return infinite(negative) if a.size else NAN
    return Float("finite", negative, a.size / b.size)


def sqrt(x: Float) -> Float:
    """A root that is no fraction stands for by one on the same side of every boundary."""
    if x.what == "nan" or (x.what == "finite" and x.size == 0):
        return x
    if x.negative:
        return NAN
    if x.what == "infinite":
        return x
    scale = 4**700  # so that the root has far more digits than a number of either dtype
    exact = x.size * scale * scale
    assert exact.denominator == 1
    root = math.isqrt(exact.numerator)
    sticky = Fraction(0 if root * root == exact.numerator else 1, 2)
    return Float("finite", False, (root + sticky) / scale)


def fma(a: Float, b: Float, c: Float) -> Float:
    return add(mul(a, b), c)


# -- 1.10, 1.11 ------------------------------------------------------------------------------------
def _order(x: Float, zeros: bool) -> tuple[int, Fraction, int]:
    """A key: numbers below one another. With `zeros` −0 lies below +0."""
    if x.what == "infinite":
        return (-1 if x.negative else 1), Fraction(0), 0
    return 0, x.value, -1 if zeros and x.negative and x.size == 0 else 0


def extreme(a: Float, b: Float, larger: bool) -> Float:
    if "nan" in (a.what, b.what):
        return NAN
    first_is_larger = _order(a, True) > _order(b, True)
    return a if first_is_larger == larger else b


def compare(kind: str, a: object, b: object) -> bool:
    """On keys that are ordered."""
    tests: dict[str, Callable[[], bool]] = {
        "eq": lambda: a == b,
        "ne": lambda: a != b,
        "lt": lambda: a < b,  # type: ignore[operator]
        "le": lambda: a <= b,  # type: ignore[operator]
        "gt": lambda: a > b,  # type: ignore[operator]
        "ge": lambda: a >= b,  # type: ignore[operator]
    }
    return tests[kind]()


# -- 10.5, 10.8, 10.10, 10.11 ----------------------------------------------------------------------
def signed(bits: int, dtype: str) -> int:
    """The integer of these bits; a bool's is 0 or 1."""
    width = WIDTH[dtype]
    return bits - (1 << width) if dtype in ("i64", "i32") and bits >> (width - 1) else bits


_INTEGERS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "floor_divide": lambda a, b: a // b,
    "left_shift": lambda a, b: a << b if 0 <= b <= 63 else 0,
    "right_shift": lambda a, b: a >> b if 0 <= b <= 63 else (-1 if a < 0 else 0),
}
_FLOATS: dict[str, Callable[..., Float]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "sqrt": sqrt,
    "fma": fma,
    "neg": neg,
    "abs": lambda x: Float(x.what, False, x.size),
    "max": lambda a, b: extreme(a, b, True),
    "min": lambda a, b: extreme(a, b, False),
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def integer(value: int, dtype: str) -> int:
    """The bits of an integer, modulo 2 to the dtype's width."""
    return value & ((1 << WIDTH[dtype]) - 1)


def converted(bits: int, old: str, new: str) -> int:
    """10.7, and f64 to f32 (RN32) and back."""
    if old in _DIGITS:
        x = decoded(bits, old)
        if new in _DIGITS:
            return encoded(x, new)
        if new == "bool":
            return int(x.what != "finite" or x.size != 0)
        return integer(math.trunc(x.value), new)
    value = signed(bits, old)
    if new in _DIGITS:
        return encoded(_of(Fraction(value), False), new)
    return int(value != 0) if new == "bool" else integer(value, new)


def result(kind: str, dtype: str, of: Sequence[str], bits: Sequence[int]) -> int:
    """The bits that a primitive of dtype `dtype` gives on operands of dtypes `of`. A NaN is the
    canonical one, as in an output (1.5)."""
    if kind == "convert":
        return converted(bits[0], of[0], dtype)
    if kind == "select":
        chosen = bits[1] if bits[0] else bits[2]
        return encoded(decoded(chosen, dtype), dtype) if dtype in _DIGITS else chosen
    if kind in ELEMENTARY:
        return elementary_pattern(kind, bits[0])
    if kind == "pow":
        return pow_pattern(bits[0], bits[1])
    if of[0] not in _DIGITS:
        values = [signed(x, one) for x, one in zip(bits, of, strict=True)]
        if kind in _COMPARISONS:
            return int(compare(kind, *values))
        if kind == "not":
            return 1 - values[0] if dtype == "bool" else integer(-1 - values[0], dtype)
        return integer(_INTEGERS[kind](*values), dtype)
    numbers = [decoded(x, one) for x, one in zip(bits, of, strict=True)]
    if kind not in _COMPARISONS:
        return encoded(_FLOATS[kind](*numbers), dtype)
    if any(x.what == "nan" for x in numbers):
        return int(kind == "ne")
    return int(compare(kind, *(_order(x, False) for x in numbers)))


def of_float(value: float, dtype: str) -> int:
    """The bits of a binary64 number as one of another dtype (1.9, 10.1)."""
    if dtype == "bool":
        return int(value)
    if dtype not in _DIGITS:
        return integer(int(value), dtype)
    if value != value:
        return encoded(NAN, dtype)
    negative = math.copysign(1.0, value) < 0
    if math.isinf(value):
        return encoded(infinite(negative), dtype)
    return encoded(Float("finite", negative, abs(Fraction(value))), dtype)
