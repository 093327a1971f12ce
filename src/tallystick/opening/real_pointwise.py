"""Operators of one element each, in the real numbers (NUMERICS 14.9.1, 14.11).

These are the clauses of NUMERICS 5, 6, 10 and 11 without any rounding. Constants are the real ones.
Attributes are first rounded by RN32, except those of §11, which stay binary64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick.numerics.attachments import Attachments
from tallystick.numerics.operators.common import number, rn32, text
from tallystick.numerics.types import Attrs
from tallystick.opening import approx as r
from tallystick.opening.approx import Approx, pick, real
from tallystick.opening.real_functions import LN2

Operands = list[Any]  # Approx; bool or integer arrays; None where absent
Graph = Callable[[Attrs, Operands], Any]

real_graph: Attachments[Graph] = Attachments("real graph", "tallystick.opening.real_pointwise")
_HALF_ROOT, _ROOT_2_PI = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)
_TANH = math.sqrt(2 / math.pi)


def _attribute(attrs: Attrs, name: str) -> float:
    return float(rn32(number(attrs, name)))


def _pair(name: str, of: Callable[[Attrs, Any, Any], Any]) -> None:
    @real_graph(f"aten.{name}.Tensor")
    def tensor(attrs: Attrs, xs: Operands) -> Any:
        return of(attrs, xs[0], xs[1])

    @real_graph(f"aten.{name}.Scalar")
    def scalar(attrs: Attrs, xs: Operands) -> Any:
        return of(attrs, xs[0], _attribute(attrs, "other"))


def _unary(name: str, of: Callable[[Any], Any]) -> None:
    @real_graph(f"aten.{name}")
    def graph(_: Attrs, xs: Operands) -> Any:
        return of(xs[0])


_pair("add", lambda attrs, a, b: a + _times(attrs, b))
_pair("sub", lambda attrs, a, b: a - _times(attrs, b))
_pair("mul", lambda _, a, b: a * b)
_pair("div", lambda _, a, b: a / b)


def _times(attrs: Attrs, b: Any) -> Any:
    alpha = _attribute(attrs, "alpha")
    return b if alpha == 1 else real(b) * alpha


def _exp2(x: Approx) -> Approx:
    return r.exp(x * LN2)


for _name, _of in {
    "exp": r.exp, "exp2": _exp2, "expm1": r.expm1, "log": r.log, "log1p": r.log1p,
    "log2": lambda x: r.log(x) / LN2, "tanh": r.tanh, "erf": r.erf, "sigmoid": r.sigmoid,
    "sin": r.sine, "cos": r.cosine, "rsqrt": r.rsqrt, "sqrt": r.sqrt,
    "reciprocal": lambda x: 1.0 / x, "square": lambda x: x * x, "neg": lambda x: -x,
    "abs": lambda x: Approx(np.abs(x.value), x.error), "silu": lambda x: x * r.sigmoid(x),
    "_to_copy": real,
}.items():  # fmt: skip
    _unary(_name, _of)


def _larger(a: Any, b: Any) -> Any:
    """max(a, b) of NUMERICS 1.11.

    numpy's own maximum of two zeros is the second operand on one processor and the positive one on
    another, and both parties state its bits.
    """
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


def _smaller(a: Any, b: Any) -> Any:
    """min(a, b) of NUMERICS 1.11."""
    return -_larger(-a, -b)


@real_graph("aten.maximum")
def _maximum(_: Attrs, xs: Operands) -> Any:
    return Approx(_larger(xs[0].exactly(), xs[1].exactly()))


@real_graph("aten.minimum")
def _minimum(_: Attrs, xs: Operands) -> Any:
    return Approx(_smaller(xs[0].exactly(), xs[1].exactly()))


@real_graph("aten.clamp")
def _clamp(attrs: Attrs, xs: Operands) -> Any:
    x = xs[0].exactly()
    if "min" in attrs:
        x = _larger(x, _attribute(attrs, "min"))
    if "max" in attrs:
        x = _smaller(x, _attribute(attrs, "max"))
    return Approx(x)


@real_graph("aten.relu")
def _relu(_: Attrs, xs: Operands) -> Any:
    return Approx(_larger(xs[0].exactly(), np.float64(0.0)))


@real_graph("aten.threshold_backward")
def _threshold_backward(attrs: Attrs, xs: Operands) -> Any:
    return pick(xs[1].exactly() <= _attribute(attrs, "threshold"), 0.0, xs[0])


@real_graph("aten.leaky_relu")
def _leaky_relu(attrs: Attrs, xs: Operands) -> Any:
    slope = _attribute(attrs, "negative_slope")
    return pick(xs[0].exactly() > 0, xs[0], xs[0] * slope)


@real_graph("aten.pow.Tensor_Scalar")
def _pow(attrs: Attrs, xs: Operands) -> Any:
    x, y = xs[0], _attribute(attrs, "exponent")
    at = x.exactly()
    with np.errstate(all="ignore"):
        size = r.exp(r.log(Approx(np.abs(at))) * y)
        odd = y == np.rint(y) and y % 2 == 1
        signed = pick((at < 0) & odd, -size, size)
        if y != np.rint(y):
            signed = pick(at < 0, np.nan, signed)
        at_zero = 0.0 if y > 0 else np.inf if y < 0 else y
        signed = pick(at == 0, np.copysign(at_zero, at) if odd else at_zero, signed)
        found = pick((at == 1) | (y == 0), 1.0, signed)
        return pick(np.isfinite(at), found, np.nan)


@real_graph("tallystick.mask_scale")
def _mask_scale(attrs: Attrs, xs: Operands) -> Any:
    return pick(xs[1], xs[0] * _attribute(attrs, "scale"), 0.0)


# -- activations (6.7 - 6.11) --------------------------------------------------------------------
@real_graph("aten.gelu")
def _gelu(attrs: Attrs, xs: Operands) -> Any:
    x = xs[0]
    if text(attrs, "approximate") == "none":
        return (x * 0.5) * (1.0 + r.erf(x * _HALF_ROOT))
    return (x * 0.5) * (1.0 + r.tanh(_inner(x)))


def _inner(x: Approx) -> Approx:
    return (x + ((x * x) * x) * 0.044715) * _TANH


@real_graph("aten.gelu_backward")
def _gelu_backward(attrs: Attrs, xs: Operands) -> Any:
    g, x = xs
    if text(attrs, "approximate") == "none":
        c = (1.0 + r.erf(x * _HALF_ROOT)) * 0.5
        return g * (x * (r.exp((x * x) * -0.5) * _ROOT_2_PI) + c)
    t = r.tanh(_inner(x))
    v = ((x * x) * (3 * 0.044715) + 1.0) * _TANH
    return g * ((1.0 + t) * 0.5 + ((x * 0.5) * (1.0 - t * t)) * v)


@real_graph("aten.silu_backward")
def _silu_backward(_: Attrs, xs: Operands) -> Any:
    g, x = xs
    s = r.sigmoid(x)
    return g * (s * (x * (1.0 - s) + 1.0))


@real_graph("aten.tanh_backward")
def _tanh_backward(_: Attrs, xs: Operands) -> Any:
    g, y = xs
    return g * (1.0 - y * y)


@real_graph("aten.sigmoid_backward")
def _sigmoid_backward(_: Attrs, xs: Operands) -> Any:
    g, y = xs
    return g * (y * (1.0 - y))


# -- optimizers (11) -----------------------------------------------------------------------------
def _adam(attrs: Attrs, xs: Operands, decoupled: bool) -> list[Any]:
    p, g, m, v, lr, power1, power2 = xs[:7]
    if len(xs) > 7 and xs[7] is not None:
        g = g * xs[7]
    decay, beta1, beta2 = (number(attrs, k) for k in ("weight_decay", "beta1", "beta2"))
    if decay and not decoupled:
        g = g + p * decay
    m = m + (g - m) * (1 - beta1)
    v = v * beta2 + (g * g) * (1 - beta2)
    step = lr / (1.0 - power1)
    below = r.sqrt(v) / r.sqrt(1.0 - power2) + number(attrs, "eps")
    kept = p * (1.0 - lr * decay) if decoupled else p
    return [kept - step * (m / below), m, v]


@real_graph("tallystick.adamw_step")
def _adamw_step(attrs: Attrs, xs: Operands) -> Any:
    return _adam(attrs, xs, decoupled=True)


@real_graph("tallystick.adam_step")
def _adam_step(attrs: Attrs, xs: Operands) -> Any:
    return _adam(attrs, xs, decoupled=False)


@real_graph("tallystick.sgd_step")
def _sgd_step(attrs: Attrs, xs: Operands) -> Any:
    p, g, buffer, lr = xs[:4]
    if len(xs) > 4 and xs[4] is not None:
        g = g * xs[4]
    decay, momentum = number(attrs, "weight_decay"), number(attrs, "momentum")
    if decay:
        g = g + p * decay
    if buffer is None:
        return [p - lr * g]
    buffer = buffer * momentum + g * (1 - number(attrs, "dampening"))
    step = g + buffer * momentum if attrs["nesterov"] else buffer
    return [p - lr * step, buffer]
