"""Exact torch kernels of comparisons, logic, extremes of two, conversions (NUMERICS 6.11, 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tallystick.errors import RefusedOperandsError
from tallystick.kernels.stock.exact import NAN32, bits, exact, keys, of_keys, type_of, write
from tallystick.kernels.stock.stock import Tensor, Tensors, need
from tallystick.numerics.operators.common import constant, number, rn32, whole
from tallystick.numerics.operators.elementwise import COMPARISONS
from tallystick.numerics.types import Attrs

Outputs = list[Tensor]
_FIRST, _EITHER = ((0, 0),), ((0, 0), (1, 0))
_SIGN, _MAGNITUDE = -(1 << 31), (1 << 31) - 1


def _scalar(op: str, attrs: Attrs, name: str, x: Tensor) -> Any:
    """A float attribute that is a second operand, as x's dtype has it (10.1)."""
    return constant(op, name, number(attrs, name), type_of(x).dtype).item()


# --- comparisons and logic (1.10, 10.5) -----------------------------------------------------------
@exact(*(f"aten.{name}.{form}" for name in COMPARISONS for form in ("Tensor", "Scalar")),
       named=True)  # fmt: skip
def _comparison(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    a, kind = need(inputs, 0), op.split(".")[1]
    b = _scalar(op, attrs, "other", a) if op.endswith(".Scalar") else need(inputs, 1)
    getattr(torch, kind)(a, b, out=outputs[0])


def _logic(function: Any, count: int, *names: str) -> None:
    @exact(*names, inplace=tuple((i, 0) for i in range(count)))
    def run(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        function(*(need(inputs, i) for i in range(count)), out=outputs[0])


_logic(torch.logical_and, 2, "aten.logical_and", "aten.bitwise_and.Tensor")
_logic(torch.logical_or, 2, "aten.logical_or", "aten.bitwise_or.Tensor")
_logic(torch.logical_not, 1, "aten.logical_not", "aten.bitwise_not")


# --- integers (10.2, 10.8): they wrap, in torch as in the clause ----------------------------------
def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@exact("aten.add.Tensor", "aten.sub.Tensor", named=True, inplace=_EITHER)
def _sum(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    a, b, factor = need(inputs, 0), need(inputs, 1), whole(op, "alpha", number(attrs, "alpha"))
    add = torch.add if op.startswith("aten.add") else torch.sub
    add(a, b if factor == 1 else b * factor, out=outputs[0])


@exact("aten.add.Scalar", "aten.sub.Scalar", named=True, inplace=_FIRST)
def _sum_scalar(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    term = whole(op, "other", number(attrs, "other")) * whole(op, "alpha", number(attrs, "alpha"))
    term = term if op.startswith("aten.add") else -term
    torch.add(need(inputs, 0), _wrapped(term), out=outputs[0])


@exact("aten.mul.Tensor", inplace=_EITHER)
def _product(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    torch.mul(need(inputs, 0), need(inputs, 1), out=outputs[0])


@exact("aten.mul.Scalar", named=True, inplace=_FIRST)
def _product_scalar(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    torch.mul(need(inputs, 0), whole(op, "other", number(attrs, "other")), out=outputs[0])


@exact("aten.floor_divide", named=True, inplace=_EITHER)
def _floor_divide(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    a, b, out = need(inputs, 0), need(inputs, 1), outputs[0]
    if out.numel() and bool((b == 0).any()):
        raise RefusedOperandsError(op, "a divisor is 0.")
    # A processor stops at -2^63 / -1, and negation wraps.
    turned = b == -1
    quotient = torch.div(a, torch.where(turned, 1, b), rounding_mode="floor")
    out.copy_(torch.where(turned, -a, quotient))


# --- extremes of two (1.11, 10.4) -----------------------------------------------------------------
def _extremum(name: str, integers: Callable[..., Tensor], least: bool) -> None:
    @exact(f"aten.{name}", inplace=_EITHER)
    def run(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
        a, b, out = need(inputs, 0), need(inputs, 1), outputs[0]
        if a.dtype == torch.float32:
            out.copy_(of_keys(torch.maximum(keys(a, least), keys(b, least)), least))
        else:
            integers(a, b, out=out)


_extremum("maximum", torch.maximum, False)
_extremum("minimum", torch.minimum, True)


def _bound(attrs: Attrs, name: str, x: Tensor) -> Tensor:
    """RN32 of a bound, without an axis, where x lies."""
    seen = int(rn32(number(attrs, name)).view("i4"))
    return torch.full((), seen, dtype=torch.int32, device=x.device).view(torch.float32)


@exact("aten.clamp", named=True, inplace=_FIRST)
def _clamp(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    """min(max(x, lo), hi), absent bounds skipped (10.4)."""
    x, out = need(inputs, 0), outputs[0]
    if x.dtype != torch.float32:
        low = _scalar(op, attrs, "min", x) if "min" in attrs else None
        high = _scalar(op, attrs, "max", x) if "max" in attrs else None
        out.copy_(torch.clamp(x, low, high))
        return
    for name, least in (("min", False), ("max", True)):
        if name in attrs:
            bound = keys(_bound(attrs, name, x), least)
            x = of_keys(torch.maximum(keys(x, least), bound), least)
    out.copy_(x)


# --- one operand (6.11, 10.3) ---------------------------------------------------------------------
@exact("aten.neg", inplace=_FIRST)
def _neg(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    write((bits(need(inputs, 0)) ^ _SIGN).view(torch.float32), outputs[0])


@exact("aten.abs", inplace=_FIRST)
def _abs(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    write((bits(need(inputs, 0)) & _MAGNITUDE).view(torch.float32), outputs[0])


@exact("aten.relu", inplace=_FIRST)
def _relu(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x = need(inputs, 0)
    kept = torch.where(x > 0, bits(x), torch.where(x.isnan(), NAN32, 0))
    bits(outputs[0]).copy_(kept)


@exact("aten.threshold_backward", inplace=_EITHER)
def _threshold_backward(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    g, x = need(inputs, 0), need(inputs, 1)
    off = x <= float(rn32(number(attrs, "threshold")))
    write(torch.where(off, 0, bits(g)).view(torch.float32), outputs[0])


# --- conversions (10.7) ---------------------------------------------------------------------------
@exact("aten._to_copy", named=True)
def _to_copy(op: str, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, out = need(inputs, 0), outputs[0]
    if out.dtype == torch.bool:
        torch.ne(x, 0, out=out)
        return
    if x.dtype == torch.float32 and not bool(((x >= -(2.0**63)) & (x < 2.0**63)).all()):
        raise RefusedOperandsError(op, "a NaN or out-of-range value has no 64-bit integer.")
    out.copy_(x)


# --- the optimizers' powers (11.1) ----------------------------------------------------------------
@exact("tallystick.beta_power")
def _beta_power(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    write(need(inputs, 0) * number(attrs, "beta"), outputs[0])
