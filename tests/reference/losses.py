"""Cross-entropy, negative log-likelihood, squared error (NUMERICS 7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.exact import elementary
from reference.floats import F32, fma, rn32_int
from reference.sums import max_rows, sum_rows, total

Inputs = list[Any]
Attrs = dict[str, Any]


def _reduce(losses: np.ndarray, reduction: str, count: int) -> np.ndarray:
    if reduction == "none":
        return losses
    s = total(losses)
    return np.asarray(s / rn32_int(count) if reduction == "mean" else s, F32)


def _row_factor(g: np.ndarray, r: int, reduction: str, divisor: np.float32) -> np.float32:
    """c of 7.2 and 7.3."""
    if reduction == "none":
        return F32(g[r])
    return F32(g / divisor) if reduction == "mean" else F32(g[()])


def _cross_entropy(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, t = inputs
    ignore, rows = attrs["ignore_index"], x.shape[0]
    m = max_rows(x)
    s = sum_rows(elementary("exp", x - m[:, None]))
    log_s = elementary("log", s)
    losses = np.zeros(rows, F32)
    for r in range(rows):
        if t[r] != ignore:
            losses[r] = log_s[r] - (x[r, t[r]] - m[r])
    count = sum(int(v) != ignore for v in t)
    return [_reduce(losses, attrs["reduction"], count), m, s]


def _cross_entropy_backward(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x, t, m, s = inputs
    ignore, reduction = attrs["ignore_index"], attrs["reduction"]
    count = rn32_int(sum(int(v) != ignore for v in t))
    out = np.zeros(x.shape, F32)
    for r in range(x.shape[0]):
        if t[r] == ignore:
            continue
        c = _row_factor(g, r, reduction, count)
        p = elementary("exp", x[r] - m[r]) / s[r]
        out[r] = p * c
        out[r, t[r]] = fma(p[t[r]], c, -c)
    return [out]


def _nll(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, t = inputs
    ignore = attrs["ignore_index"]
    losses = np.zeros(x.shape[0], F32)
    for r in range(x.shape[0]):
        if t[r] != ignore:
            losses[r] = -x[r, t[r]]
    count = sum(int(v) != ignore for v in t)
    return [_reduce(losses, attrs["reduction"], count), np.asarray(rn32_int(count), F32)]


def _nll_backward(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x, t, weight = inputs
    out = np.zeros(x.shape, F32)
    for r in range(x.shape[0]):
        if t[r] != attrs["ignore_index"]:
            out[r, t[r]] = -_row_factor(g, r, attrs["reduction"], F32(weight[()]))
    return [out]


def _mse(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    d = inputs[0] - inputs[1]
    return [_reduce(d * d, attrs["reduction"], d.size)]


def _mse_backward(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x, y = inputs
    out = (F32(2.0) * (x - y)) * g
    return [out / rn32_int(x.size) if attrs["reduction"] == "mean" else out]


LOSSES = {
    "tallystick.cross_entropy": _cross_entropy,
    "tallystick.cross_entropy_backward": _cross_entropy_backward,
    "aten.nll_loss_forward": _nll,
    "aten.nll_loss_backward": _nll_backward,
    "aten.mse_loss": _mse,
    "aten.mse_loss_backward": _mse_backward,
}
