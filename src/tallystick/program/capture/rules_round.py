"""Compositions for rounding, division with rounding, and tests of a number's kind (NUMERICS 10).

A sum with 2²³ leaves a binary32 number no place for a fraction: (a + 2²³) − 2²³ is a rounded to an
integer, ties to even, for 0 ≤ a ≤ 2²³. Numbers beyond are integers. Zeros keep their signs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tallystick.program.capture.decompose import composition

_WHOLE = 2.0**23


# Torch's reference decompositions end in these; their meaning is that of ATen's operator.
for _name in ("abs", "add", "sub", "mul", "neg", "eq", "ne", "lt", "le", "gt", "ge", "pow", "exp",
              "log", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
              "asinh", "acosh", "atanh", "atan2", "floor", "ceil", "trunc", "round", "remainder",
              "fmod", "hypot", "signbit", "erfc", "lgamma", "digamma", "fmax", "fmin",
              "where", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
              "bitwise_not"):  # fmt: skip
    composition(f"prims.{_name}")(getattr(torch, _name))
composition("prims.erf_inv")(torch.erfinv)


@composition("prims.div")
def _div(a: Tensor, b: Tensor) -> Any:
    """The primitive truncates integers; torch's own division does not."""
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@composition("prims.convert_element_type")
def _convert(a: Tensor, dtype: torch.dtype) -> Tensor:
    return a.to(dtype)


def signed(x: Tensor, magnitude: Tensor) -> Tensor:
    """`magnitude` with the sign of x; x itself where it is ±0 or NaN."""
    return torch.where(x > 0, magnitude, torch.where(x < 0, -magnitude, x))


def is_negative(x: Tensor) -> Tensor:
    """Whether the sign is negative, that of −0 too. A NaN has none."""
    return (x < 0) | ((x == 0) & (1.0 / x < 0))


@composition("aten.signbit")
def _signbit(x: Tensor) -> Tensor:
    return is_negative(x) if x.is_floating_point() else x < 0


def _floor(x: Tensor) -> Tensor:
    shift = torch.where(x < 0, -_WHOLE, _WHOLE)
    inside = x.clamp(-_WHOLE, _WHOLE)
    near = (inside + shift) - shift
    down = torch.where(near > inside, near - 1.0, near)
    # Also infinities, −0, and numbers too large for a fraction.
    return torch.where(down == inside, x, down)


def _trunc(x: Tensor) -> Tensor:
    inside = x.abs().clamp(max=_WHOLE)
    near = (inside + _WHOLE) - _WHOLE
    down = torch.where(near > inside, near - 1.0, near)
    return torch.where(down == inside, x, torch.where(x < 0, -down, down))


def _round(x: Tensor) -> Tensor:
    inside = x.abs().clamp(max=_WHOLE)
    near = (inside + _WHOLE) - _WHOLE
    return torch.where(near == inside, x, torch.where(x < 0, -near, near))


@composition("aten.floor")
def floor(x: Tensor) -> Tensor:
    return _floor(x) if x.is_floating_point() else x.clone()


@composition("aten.ceil")
def ceil(x: Tensor) -> Tensor:
    return -_floor(-x) if x.is_floating_point() else x.clone()


@composition("aten.trunc", "aten.fix")
def trunc(x: Tensor) -> Tensor:
    return _trunc(x) if x.is_floating_point() else x.clone()


@composition("aten.round")
def round_to_even(x: Tensor) -> Tensor:
    return _round(x) if x.is_floating_point() else x.clone()


@composition("aten.round.decimals")
def _decimals(x: Tensor, *, decimals: int) -> Tensor:
    """As torch: scaled by a power of ten, rounded, scaled back."""
    if not x.is_floating_point() or decimals == 0:
        return round_to_even(x)
    ten = 10.0 ** abs(decimals)
    return _round(x * ten) / ten if decimals > 0 else _round(x / ten) * ten


@composition("aten.frac")
def _frac(x: Tensor) -> Tensor:
    return x - _trunc(x)


# -- division ---------------------------------------------------------------------------------


def two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(p, e) with p = RN32(a·b) and p + e = a·b, by Dekker's splitting at 2¹² + 1."""

    def split(x: Tensor) -> tuple[Tensor, Tensor]:
        c = x * 4097.0
        high = c - (c - x)
        return high, x - high

    p = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _less_multiple(x: Tensor, y: Tensor, scale: float) -> Tensor:
    """x − q·(y·scale) for q = trunc(x / (y·scale)), exactly, where |q| < 2²³."""
    step = y * scale
    q = _trunc(x / step)
    p, e = two_product(q, step)
    return torch.where((q == 0) | (step.abs() == math.inf), x, (x - p) - e)


def _modulo(x: Tensor, y: Tensor) -> Tensor:
    """The remainder that has the sign of x, exactly, for quotients up to 2⁴³; NaN beyond.

    A quotient rounded up to an integer leaves a remainder of the other sign, by one multiple of y.
    """
    bound = y.abs()
    rest = _less_multiple(_less_multiple(x, y, 2.0**21), y, 1.0)
    wrong = ((rest < 0) & (x > 0)) | ((rest > 0) & (x < 0))
    rest = torch.where(wrong, torch.where(x > 0, rest + bound, rest - bound), rest)
    # Too large by one multiple, where the quotient was rounded down.
    over = rest.abs() >= bound
    rest = torch.where(over, torch.where(rest > 0, rest - bound, rest + bound), rest)
    sound = ((x / y).abs() < 2.0**43) & (x.abs() < math.inf)
    rest = torch.where(sound, rest, math.nan)
    # −0 for a negative x without remainder, as in C.
    return torch.where(rest == 0, x * 0.0, torch.where(bound == math.inf, x + rest * 0.0, rest))


def pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors of one dtype and shape."""
    dtype = torch.result_type(a, b)
    device = a.device if isinstance(a, Tensor) else b.device
    left, right = (
        v.to(dtype) if isinstance(v, Tensor) else torch.full((), v, dtype=dtype, device=device)
        for v in (a, b)
    )
    left, right = torch.broadcast_tensors(left, right)  # type: ignore[no-untyped-call]
    return left, right


@composition("aten.fmod.Tensor", "aten.fmod.Scalar")
def _fmod(a: Any, b: Any) -> Tensor:
    x, y = pair(a, b)
    if x.is_floating_point():
        return _modulo(x, y)
    return x - y * torch.div(x, y, rounding_mode="trunc")


@composition("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def _remainder(a: Any, b: Any) -> Tensor:
    """The remainder that has the sign of y."""
    x, y = pair(a, b)
    if not x.is_floating_point():
        return x - y * torch.floor_divide(x, y)
    rest = _modulo(x, y)
    other = (rest != 0) & ((rest < 0) != (y < 0))
    return torch.where(other, rest + y, rest)


def _whole_trunc(x: Tensor, y: Tensor) -> Tensor:
    """Integer division toward zero, from the one toward −∞."""
    down = torch.floor_divide(x, y)
    inexact = x - down * y != 0
    return torch.where((down < 0) & inexact, down + 1, down)


def _floor_quotient(x: Tensor, y: Tensor) -> Tensor:
    """torch's floor division: exact where (x − x mod y) / y is, the quotient's own floor else."""
    rest = _modulo(x, y)
    other = (rest != 0) & ((rest < 0) != (y < 0))
    near = (x - rest) / y
    near = torch.where(other, near - 1.0, near)
    down = _floor(near)
    down = torch.where(near - down > 0.5, down + 1.0, down)
    quotient = x / y
    down = torch.where(near == 0, quotient * 0.0, down)
    return torch.where(y == 0, quotient, down)


@composition("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_mode(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return torch.true_divide(a, b)
    x, y = pair(a, b)
    if x.is_floating_point():
        return _trunc(x / y) if rounding_mode == "trunc" else _floor_quotient(x, y)
    return _whole_trunc(x, y) if rounding_mode == "trunc" else torch.floor_divide(x, y)


@composition("aten.floor_divide", "aten.floor_divide.Scalar")
def _floor_divide(a: Any, b: Any) -> Any:
    """Of integers: rules_whole's rule."""
    if not torch.result_type(a, b).is_floating_point:
        return NotImplemented
    return _floor_quotient(*pair(a, b))


# -- kinds of numbers ---------------------------------------------------------------------------


@composition("aten.isnan")
def _isnan(x: Tensor) -> Tensor:
    return x != x


@composition("aten.isinf")
def _isinf(x: Tensor) -> Tensor:
    return x.abs() == math.inf if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)


@composition("aten.isfinite")
def _isfinite(x: Tensor) -> Tensor:
    return x.abs() < math.inf if x.is_floating_point() else torch.ones_like(x, dtype=torch.bool)


@composition("aten.isclose")
def _isclose(
    x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Equal, or a finite difference of at most atol + |rtol·y|."""
    near = x == y
    if x.is_floating_point():
        distance = (x - y).abs()
        near = near | (torch.isfinite(distance) & (distance <= (y * rtol).abs() + atol))
        if equal_nan:
            near = near | (torch.isnan(x) & torch.isnan(y))
        return near
    return near | ((x - y).abs().float() <= (y.float() * rtol).abs() + atol)


@composition("aten.isposinf")
def _isposinf(x: Tensor) -> Tensor:
    return x == math.inf if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)


@composition("aten.isneginf")
def _isneginf(x: Tensor) -> Tensor:
    return x == -math.inf if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)


@composition("aten.copysign.Tensor", "aten.copysign.Scalar")
def _copysign(a: Any, b: Any) -> Tensor:
    x, y = pair(a, b)
    dtype = torch.promote_types(x.dtype, torch.float32)
    size = x.to(dtype).abs()
    return torch.where(torch.signbit(y), -size, size)


@composition("aten.fmax")
def _fmax(a: Tensor, b: Tensor) -> Tensor:
    x, y = pair(a, b)
    return torch.where(x != x, y, torch.where(y != y, x, torch.maximum(x, y)))


@composition("aten.fmin")
def _fmin(a: Tensor, b: Tensor) -> Tensor:
    x, y = pair(a, b)
    return torch.where(x != x, y, torch.where(y != y, x, torch.minimum(x, y)))


@composition("aten.logical_xor")
def _logical_xor(a: Tensor, b: Tensor) -> Tensor:
    return (a != 0) != (b != 0)
