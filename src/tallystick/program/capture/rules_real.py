"""Compositions for elementary and special functions that the contract lacks (NUMERICS 5, 10).

They rest on the contract's functions, which are rounded once, and on polynomials. Each polynomial
names its source. A reduction is chosen so that nothing cancels; tests compare every function with
binary64 over its whole range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tallystick.program.capture.decompose import composition
from tallystick.program.capture.rules_round import is_negative, pair, signed, two_product


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """By Horner's rule, the highest power first."""
    y = x * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        y = y * x + c
    return y


def _real(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.to(torch.float32)


# -- circular and hyperbolic functions and their inverses ---------------------------------------

# Cephes' atanf and asinf (S. L. Moshier, Cephes Mathematical Library 2.2, single precision).
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
_TAN_PI_8, _TAN_3PI_8 = math.tan(math.pi / 8), math.tan(3 * math.pi / 8)


def _atan_of_size(a: Tensor) -> Tensor:
    """atan(a) for a ≥ 0, reduced at tan(π/8) and tan(3π/8)."""
    large, middle = a > _TAN_3PI_8, a > _TAN_PI_8
    t = torch.where(large, -1.0 / a, torch.where(middle, (a - 1.0) / (a + 1.0), a))
    offset = torch.where(large, math.pi / 2, torch.where(middle, math.pi / 4, 0.0))
    z = t * t
    return offset + (polynomial(z, _ATAN) * z * t + t)


@composition("aten.atan")
def _atan(x: Tensor) -> Tensor:
    x = _real(x)
    return signed(x, _atan_of_size(x.abs()))


@composition("aten.atan2")
def _atan2(y: Tensor, x: Tensor) -> Tensor:
    y, x = pair(_real(y), _real(x))
    high, wide = y.abs(), x.abs()
    larger, smaller = torch.maximum(high, wide), torch.minimum(high, wide)
    ratio = torch.where(smaller == larger, torch.where(larger == 0, 0.0, 1.0), smaller / larger)
    # NaN is neither equal to itself nor in order.
    ratio = torch.where((x != x) | (y != y), math.nan, ratio)
    angle = _atan_of_size(ratio)
    angle = torch.where(high > wide, math.pi / 2 - angle, angle)
    angle = torch.where(is_negative(x), math.pi - angle, angle)
    return torch.where(is_negative(y), -angle, angle)


def _asin_parts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """|x|, whether it is above ½, and asin(|x|) or asin(√((1 − |x|)/2))."""
    a = x.abs()
    large = a > 0.5
    z = torch.where(large, 0.5 * (1.0 - a), a * a)
    t = torch.where(large, z.sqrt(), a)
    return a, large, polynomial(z, _ASIN) * z * t + t


@composition("aten.asin")
def _asin(x: Tensor) -> Tensor:
    x = _real(x)
    _, large, part = _asin_parts(x)
    return signed(x, torch.where(large, math.pi / 2 - 2.0 * part, part))


@composition("aten.acos")
def _acos(x: Tensor) -> Tensor:
    x = _real(x)
    _, large, part = _asin_parts(x)
    outer = torch.where(x < 0, math.pi - 2.0 * part, 2.0 * part)
    return torch.where(large, outer, math.pi / 2 - signed(x, part))


@composition("aten.tan")
def _tan(x: Tensor) -> Tensor:
    x = _real(x)
    return x.sin() / x.cos()


@composition("aten.sinh")
def _sinh(x: Tensor) -> Tensor:
    x = _real(x)
    a = x.abs()
    e, half = torch.expm1(a), torch.exp(0.5 * a)
    size = torch.where(a > 88.0, (0.5 * half) * half, 0.5 * (e + e / (e + 1.0)))
    return signed(x, size)


@composition("aten.cosh")
def _cosh(x: Tensor) -> Tensor:
    a = _real(x).abs()
    e, half = torch.exp(a), torch.exp(0.5 * a)
    return torch.where(a > 88.0, (0.5 * half) * half, 0.5 * e + 0.5 / e)


@composition("aten.asinh")
def _asinh(x: Tensor) -> Tensor:
    x = _real(x)
    a = x.abs()
    square = a * a
    near = torch.log1p(a + square / (1.0 + (square + 1.0).sqrt()))
    # Beyond 2¹² the rest of the series is below half a unit in the last place.
    return signed(x, torch.where(a > 4096.0, a.log() + math.log(2.0), near))


@composition("aten.acosh")
def _acosh(x: Tensor) -> Tensor:
    x = _real(x)
    t = x - 1.0
    near = torch.log1p(t + (t * (t + 2.0)).sqrt())
    y = torch.where(x > 4096.0, x.log() + math.log(2.0), near)
    return torch.where(x < 1.0, math.nan, y)


@composition("aten.atanh")
def _atanh(x: Tensor) -> Tensor:
    x = _real(x)
    a = x.abs()
    return signed(x, 0.5 * torch.log1p((a + a) / (1.0 - a)))


@composition("aten.log10")
def _log10(x: Tensor) -> Tensor:
    """log(x)/ln 10 with the constant in two parts, so that powers of ten come out whole."""
    high = 0.434294462203979492
    low = 1.0 / math.log(10.0) - high
    y = _real(x).log()
    return y * low + y * high


@composition("aten.hypot")
def _hypot(x: Tensor, y: Tensor) -> Tensor:
    a, b = _real(x).abs(), _real(y).abs()
    larger, smaller = torch.maximum(a, b), torch.minimum(a, b)
    ratio = torch.where(larger == 0, 0.0, smaller / larger)
    size = larger * (1.0 + ratio * ratio).sqrt()
    return torch.where((a == math.inf) | (b == math.inf), math.inf, size)


@composition("aten.sinc")
def _sinc(x: Tensor) -> Tensor:
    x = _real(x)
    turn = x * math.pi
    return torch.where(x == 0, 1.0, turn.sin() / turn)


@composition("aten.angle")
def _angle(x: Tensor) -> Tensor:
    x = _real(x)
    return torch.where(x < 0, math.pi, torch.where(x != x, x, 0.0))


# -- powers -------------------------------------------------------------------------------------


def _log2_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """(h, l) with h + l = log₂(x) within 2⁻³⁰ of itself, for finite x > 0.

    x is m·2^k with m from √½ to √2, and log(m) = 2·atanh(s), s = (m − 1)/(m + 1). Only the term
    2s needs its rounding error; the series after it is below a hundredth of it.
    """
    small = x < 2.0**-100
    x = torch.where(small, x * 2.0**100, x)
    k = x.log2().round()
    # In two steps: 2^−k itself may be infinite.
    half = (k * 0.5).trunc()
    m = (x * torch.exp2(-half)) * torch.exp2(half - k)
    d, t = m - 1.0, m + 1.0
    s = d / t
    p, e = two_product(s, t)
    # t's own rounding error, exact because m < 2: (1 − t) + m.
    missing = (1.0 - t) + m
    s_low = (((d - p) - e) - s * missing) / t
    z = s * s
    series = polynomial(z, (2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3)) * z * s
    high, low = s + s, s_low + s_low + series
    inverse = 1.44269502162933349609
    p, e = two_product(high, torch.full_like(high, inverse))
    low = e + (low * inverse + high * (1.0 / math.log(2.0) - inverse))
    k = torch.where(small, k - 100.0, k)
    total = k + p
    return total, ((k - total) + p) + low


def _power_of_parts(y: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """2^(y·(h + l))."""
    p, e = two_product(y, high)
    rest = e + y * low
    # A rest of a full unit would matter to exp2's argument.
    total = p + rest
    rest = (p - total) + rest
    # Half the power and twice that, where only the rest decides whether it is finite.
    large = total > 100.0
    whole = torch.exp2(torch.where(large, total - 1.0, total))
    ordinary = (total < 129.0) & (total > -200.0)
    exact = torch.where(ordinary, whole + whole * (rest * math.log(2.0)), whole)
    return torch.where(large, exact + exact, exact)


@composition("aten.pow.Tensor_Tensor")
def _pow(x: Any, y: Any) -> Any:
    """x^y as NUMERICS 5.8 orders its cases, within a few units of the last place."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return NotImplemented
    x, y = pair(x, y)
    a = x.abs()
    ordinary = (a > 0) & (a < math.inf) & (y.abs() < math.inf)
    high, low = _log2_parts(torch.where(ordinary, a, 1.0))
    # Beyond 2¹¹⁵ Dekker's splitting overflows; so large a power is 0, 1 or infinite.
    size = _power_of_parts(torch.where(ordinary, y, 0.0).clamp(-(2.0**40), 2.0**40), high, low)
    grows = torch.where(a > 1, y > 0, y < 0)
    ends = torch.where(a == 1, 1.0, torch.where(grows, math.inf, 0.0))
    size = torch.where(ordinary, size, ends)
    whole = y.trunc() == y
    odd = whole & ((y * 0.5).trunc() != y * 0.5)
    size = torch.where(is_negative(x) & odd, -size, size)
    finite = (x < 0) & (a < math.inf) & (y.abs() < math.inf)
    size = torch.where(finite & ~whole, math.nan, size)
    size = torch.where((x != x) | (y != y), math.nan, size)
    return torch.where((y == 0) | (x == 1), 1.0, size)


@composition("aten.pow.Scalar")
def _scalar_pow(base: Any, y: Tensor) -> Any:
    dtype = torch.result_type(torch.empty(0, dtype=y.dtype), base)
    if not dtype.is_floating_point:
        return NotImplemented
    y, base = y.to(dtype), float(base)
    if base == 2.0:
        return torch.exp2(y)
    if base <= 0 or not math.isfinite(base):
        return torch.pow(torch.full_like(y, base), y)
    exact = math.log2(base)
    high = torch.tensor(exact, dtype=torch.float32, device="cpu").item()
    bounded = y.clamp(-(2.0**40), 2.0**40)
    parts = (torch.full_like(y, high), torch.full_like(y, exact - high))
    return _power_of_parts(bounded, *parts)


@composition("aten.ldexp.Tensor")
def _ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    return x * torch.exp2(_real(exponent))


# -- error function -----------------------------------------------------------------------------

# Cephes' erfcf: erfc(x)·exp(x²)·x as a polynomial in 1/x², for 1 ≤ x < 2 and beyond.
_ERFC_NEAR = (2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1,
              -5.824733027278666e-1, 6.210004621745983e-1, -4.944515323274145e-1,
              3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1)  # fmt: skip
_ERFC_FAR = (-1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786,
             -1.015265279202700, 4.218463358204948e-1, -2.820767439740514e-1,
             5.641895067754075e-1)  # fmt: skip


def _exp_of_square(x: Tensor, sign: float) -> Tensor:
    """exp(±x²): x² in two parts, the first without rounding."""
    c = x * 4097.0
    high = c - (c - x)
    # Infinite arguments have no second part.
    low = torch.where(x.abs() < 1e30, (x - high) * (x + high), 0.0)
    high = torch.where(x.abs() < 1e30, high, x)
    return torch.exp(high * high * sign) * torch.exp(low * sign)


def _scaled_tail(a: Tensor) -> Tensor:
    """erfc(a)·exp(a²) for a ≥ 1."""
    q = 1.0 / a
    z = q * q
    return q * torch.where(a < 2.0, polynomial(z, _ERFC_NEAR), polynomial(z, _ERFC_FAR))


@composition("aten.erfc", "aten.special_erfc")
def _erfc(x: Tensor) -> Tensor:
    x = _real(x)
    a = x.abs().clamp(min=1.0)
    tail = _scaled_tail(a) * _exp_of_square(a, -1.0)
    return torch.where(x > 1.0, tail, 1.0 - x.erf())


@composition("aten.special_erfcx", "prims.erfcx")
def _erfcx(x: Tensor) -> Tensor:
    x = _real(x)
    below = torch.where(x > 1.0, 1.0, x)
    return torch.where(x > 1.0, _scaled_tail(x), (1.0 - below.erf()) * _exp_of_square(below, 1.0))


# M. Giles, "Approximating the erfinv function", GPU Computing Gems 2 (2011), single precision.
_ERFINV_NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_ERFINV_FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
               -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def _erfinv_of(w: Tensor, x: Tensor) -> Tensor:
    """erfinv(x), w being −log(1 − x²)."""
    near = polynomial(w - 2.5, _ERFINV_NEAR)
    y = torch.where(w < 5.0, near, polynomial(w.sqrt() - 3.0, _ERFINV_FAR)) * x
    return torch.where(w == math.inf, x * math.inf, y)


@composition("aten.erfinv")
def _erfinv(x: Tensor) -> Tensor:
    x = _real(x)
    return _erfinv_of(-((1.0 - x) * (1.0 + x)).log(), x)


# M. J. Wichura, "Algorithm AS 241" (1988), PPND16: numerators and denominators for
# r = √(−log p) up to 5, about 1.6, and beyond 5, about 5.
_NDTRI_NEAR = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
     1.27045825245236838258, 3.64784832476320460504, 5.76949722146069140550,
     4.63033784615654529590, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
     1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940,
     2.05319162663775882187, 1.0),
)  # fmt: skip
_NDTRI_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
     2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580,
     5.46378491116411436990, 6.65790464350110377720),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
     7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
     5.99832206555887937690e-1, 1.0),
)  # fmt: skip


@composition("aten.special_ndtri", "prims.ndtri")
def _ndtri(p: Tensor) -> Tensor:
    """√2·erfinv(2p − 1); in the lower tail, where 2p − 1 has lost p, by AS 241."""
    p = _real(p)
    tail = p < 1e-3
    middle = torch.where(tail, 0.5, p)
    w = -(4.0 * middle * (1.0 - middle)).log()
    y = _erfinv_of(w, 2.0 * middle - 1.0) * math.sqrt(2.0)
    r = (-torch.where(tail, p, 0.5).log()).sqrt()
    near, far = (
        polynomial(r - at, top) / polynomial(r - at, bottom)
        for at, (top, bottom) in ((1.6, _NDTRI_NEAR), (5.0, _NDTRI_FAR))
    )
    lower = torch.where(p == 0, math.inf, torch.where(r < 5.0, near, far))
    return torch.where(tail, -lower, y)


def _ndtr(x: Tensor) -> Tensor:
    x = _real(x)
    a = (-x * math.sqrt(0.5)).clamp(min=1.0)
    tail = (0.5 * _scaled_tail(a)) * _exp_of_square(x.clamp(max=-1.0), -0.5)
    return torch.where(x < -math.sqrt(2.0), tail, 0.5 + 0.5 * (x * math.sqrt(0.5)).erf())


@composition("aten.special_log_ndtr")
def _log_ndtr(x: Tensor) -> Tensor:
    x = _real(x)
    a = (-x * math.sqrt(0.5)).clamp(min=1.0)
    lower = (0.5 * _scaled_tail(a)).log() - 0.5 * (x * x)
    return torch.where(x < -math.sqrt(2.0), lower, torch.log1p(-_ndtr(-x)))
