"""Softmax, layer_norm, activations and their gradients (NUMERICS 6)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference.exact import elementary
from reference.floats import F32, bits32, fma, rn32, rn32_int
from reference.sums import max_rows, sum_columns, sum_rows

Inputs = list[Any]
Attrs = dict[str, Any]
ONE, HALF = F32(1.0), F32(0.5)
C1, C2, C3 = bits32(0x3F3504F3), bits32(0x3ECC422A), bits32(0x3F4C422A)
C4, C5 = bits32(0x3D372713), bits32(0x3E095D4F)


def exp(x: np.ndarray) -> np.ndarray:
    return elementary("exp", x)


def _along(attrs: Attrs, arrays: Inputs, f: Any) -> list[np.ndarray]:
    """f on rows along `dim`; a 0-d tensor is one row of one."""
    x = arrays[-1]
    if x.size == 0:
        return [np.zeros(x.shape, F32)]
    if x.ndim == 0:
        return [np.asarray(f(*(a.reshape(1, 1) for a in arrays))).reshape(())]
    rows = f(*(np.moveaxis(a, attrs["dim"], -1) for a in arrays))
    return [np.moveaxis(rows, -1, attrs["dim"])]


def _softmax(x: np.ndarray) -> np.ndarray:
    m = max_rows(x)[..., None]
    e = exp(x - m)
    s = sum_rows(e)[..., None]
    return np.asarray(e / s)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    m = max_rows(x)[..., None]
    z = x - m
    s = sum_rows(exp(z))
    lg = elementary("log", s)[..., None]
    return np.asarray(z - lg)


def _softmax_backward(g: np.ndarray, y: np.ndarray) -> np.ndarray:
    s = sum_rows(g * y)[..., None]
    return np.asarray(y * (g - s))


def _log_softmax_backward(g: np.ndarray, y: np.ndarray) -> np.ndarray:
    s = sum_rows(g)[..., None]
    return np.asarray(g - exp(y) * s)


def _optional(inputs: Inputs, i: int) -> Any:
    return inputs[i] if i < len(inputs) else None


def _layer_norm(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, shape = inputs[0], attrs["normalized_shape"]
    n = math.prod(shape)
    lead = x.shape[: x.ndim - len(shape)]
    rows = x.reshape(math.prod(lead), n)
    w, b = _optional(inputs, 1), _optional(inputs, 2)
    mean = sum_rows(rows) / rn32_int(n)
    d = rows - mean[:, None]
    var = sum_rows(d * d) / rn32_int(n)
    rstd = elementary("rsqrt", var + rn32(attrs["eps"]))
    h = d * rstd[:, None]
    if w is not None and b is not None:
        y = fma(h, w.reshape(-1), b.reshape(-1))
    elif w is not None:
        y = h * w.reshape(-1)
    elif b is not None:
        y = h + b.reshape(-1)
    else:
        y = h
    small = (*lead, *(1 for _ in shape))
    return [y.reshape(x.shape), mean.reshape(small), rstd.reshape(small)]


def _layer_norm_backward(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x, mean, rstd = inputs[:4]
    w, shape = _optional(inputs, 4), attrs["normalized_shape"]
    n, rows = math.prod(shape), mean.size
    g2, x2 = g.reshape(rows, n), x.reshape(rows, n)
    m, r = mean.reshape(rows, 1), rstd.reshape(rows, 1)
    h = (x2 - m) * r
    k = g2 if w is None else g2 * w.reshape(-1)
    s1 = (sum_rows(k) / rn32_int(n))[:, None]
    s2 = (sum_rows(k * h) / rn32_int(n))[:, None]
    dx = ((k - s1) - h * s2) * r
    dw, db = sum_columns(g2 * h), sum_columns(g2)
    outs = (dx.reshape(x.shape), dw.reshape(shape), db.reshape(shape))
    return [o for o, on in zip(outs, attrs["output_mask"], strict=True) if on]


def _gelu(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    (x,) = inputs
    if attrs["approximate"] == "none":
        a = x * HALF
        return [a * (ONE + elementary("erf", x * C1))]
    u = C3 * fma((x * x) * x, C4, x)
    return [(HALF * x) * (ONE + elementary("tanh", u))]


def _gelu_backward(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x = inputs
    if attrs["approximate"] == "none":
        c = HALF * (ONE + elementary("erf", x * C1))
        p = exp((x * x) * F32(-0.5)) * C2
        return [g * fma(x, p, c)]
    t = elementary("tanh", C3 * fma((x * x) * x, C4, x))
    v = C3 * fma(x * x, C5, ONE)
    left = HALF * (ONE + t)
    right = ((HALF * x) * fma(-t, t, ONE)) * v
    return [g * (left + right)]


def _relu(_attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    (x,) = inputs
    return [np.where(np.isnan(x), x, np.where(x > 0, x, F32(0.0)))]


def _threshold_backward(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x = inputs
    return [np.where(x <= rn32(attrs["threshold"]), F32(0.0), g)]


def _silu_backward(_attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x = inputs
    s = elementary("sigmoid", x)
    return [g * (s * fma(x, ONE - s, ONE))]


def _leaky_relu(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    (x,) = inputs
    return [np.where(x > 0, x, x * rn32(attrs["negative_slope"]))]


NN = {
    "aten._softmax": lambda a, x: _along(a, x, _softmax),
    "aten._log_softmax": lambda a, x: _along(a, x, _log_softmax),
    "aten._softmax_backward_data": lambda a, x: _along(a, x, _softmax_backward),
    "aten._log_softmax_backward_data": lambda a, x: _along(a, x, _log_softmax_backward),
    "aten.native_layer_norm": _layer_norm,
    "aten.native_layer_norm_backward": _layer_norm_backward,
    "aten.gelu": _gelu,
    "aten.gelu_backward": _gelu_backward,
    "aten.relu": _relu,
    "aten.threshold_backward": _threshold_backward,
    "aten.silu": lambda a, x: [x[0] * elementary("sigmoid", x[0])],
    "aten.silu_backward": _silu_backward,
    "aten.tanh_backward": lambda a, x: [x[0] * fma(-x[1], x[1], ONE)],
    "aten.sigmoid_backward": lambda a, x: [x[0] * (x[1] * (ONE - x[1]))],
    "aten.leaky_relu": _leaky_relu,
}
