"""Batch normalisation and max pooling (NUMERICS 6.12 - 6.16)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference.exact import elementary
from reference.floats import F32, F64, fma, rn32, rn32_int
from reference.sums import sum_rows

Inputs = list[Any]
Attrs = dict[str, Any]


def _optional(inputs: Inputs, i: int) -> Any:
    return inputs[i] if i < len(inputs) else None


def _rows(x: np.ndarray) -> np.ndarray:
    """x[N, C, …] as [C, n]: axis 1 first, the others row-major."""
    moved = np.moveaxis(x, 1, 0)
    return moved.reshape(x.shape[1], math.prod(moved.shape[1:]))


def _back(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`_rows` undone, for something of x's shape."""
    moved = rows.reshape(x.shape[1], x.shape[0], *x.shape[2:])
    return np.moveaxis(moved, 0, 1)


def _affine(h: np.ndarray, w: Any, b: Any) -> np.ndarray:
    if w is not None and b is not None:
        return np.asarray(fma(h, w[:, None], b[:, None]))
    if w is not None:
        return np.asarray(h * w[:, None])
    return np.asarray(h + b[:, None]) if b is not None else h


def _batch_norm(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x = inputs[0]
    w, b, running_mean, running_var = (_optional(inputs, i) for i in range(1, 5))
    rows = _rows(x)
    n = rows.shape[1]
    wide = rows.astype(F64)
    m64 = sum_rows(wide) / F64(n)
    d = wide - m64[:, None]
    q = sum_rows(d * d)
    mean = m64.astype(F32)
    rstd = (F64(1) / np.sqrt(q / F64(n) + F64(attrs["eps"]))).astype(F32)
    y = _affine((rows - mean[:, None]) * rstd[:, None], w, b)
    outs = [_back(y, x), mean, rstd]
    if running_mean is not None:
        m = rn32(attrs["momentum"])
        u = (q / F64(max(n - 1, 0))).astype(F32)
        outs.append(fma(m, mean - running_mean, running_mean))
        outs.append(fma(m, u - running_var, running_var))
    return outs


def _by_running(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, w, b, mean, var = inputs
    rstd = elementary("rsqrt", var + rn32(attrs["eps"]))
    h = (_rows(x) - mean[:, None]) * rstd[:, None]
    return [_back(_affine(h, w, b), x)]


def _backward(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x = _rows(inputs[0]), _rows(inputs[1])
    w, running_mean, running_var, mean, rstd = (_optional(inputs, i) for i in range(2, 7))
    if not attrs["train"]:
        mean, rstd = running_mean, elementary("rsqrt", running_var + rn32(attrs["eps"]))
    n = rn32_int(g.shape[1])
    h = (x - mean[:, None]) * rstd[:, None]
    db, dw = sum_rows(g), sum_rows(g * h)
    r = (rstd if w is None else rstd * w)[:, None]
    dx = fma(-h, (dw / n)[:, None], g - (db / n)[:, None]) * r if attrs["train"] else g * r
    outs = (_back(dx, inputs[1]), dw, db)
    return [o for o, on in zip(outs, attrs["output_mask"], strict=True) if on]


def _pair(value: tuple[int, ...]) -> tuple[int, int]:
    """One number stands for both axes."""
    return value[0], value[-1]


def _outputs(size: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    room = (size + 2 * p - d * (k - 1) - 1) / s
    count = (math.ceil(room) if ceil_mode else math.floor(room)) + 1
    return count - 1 if ceil_mode and (count - 1) * s >= size + p else count


def _max_pool(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    (x,) = inputs
    names = ("kernel_size", "stride", "padding", "dilation")
    (k0, k1), (s0, s1), (p0, p1), (d0, d1) = (_pair(attrs[name]) for name in names)
    height, width = x.shape[-2:]
    high = _outputs(height, k0, s0, p0, d0, attrs["ceil_mode"])
    wide = _outputs(width, k1, s1, p1, d1, attrs["ceil_mode"])
    y = np.zeros((*x.shape[:-2], high, wide), F32)
    index = np.zeros(y.shape, np.int64)
    for at in np.ndindex(*y.shape):
        plane, (j, i) = x[at[:-2]], at[-2:]
        taps = [
            (h, w)
            for h in range(j * s0 - p0, j * s0 - p0 + k0 * d0, d0)
            for w in range(i * s1 - p1, i * s1 - p1 + k1 * d1, d1)
            if 0 <= h < height and 0 <= w < width
        ]
        best = taps[0]
        for tap in taps[1:]:
            if not np.isnan(plane[best]) and (np.isnan(plane[tap]) or plane[tap] > plane[best]):
                best = tap
        y[at], index[at] = plane[best], best[0] * width + best[1]
    return [y, index]


def _max_pool_backward(_attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    g, x, index = inputs
    out = np.zeros(x.shape, F32)
    for lead in np.ndindex(*x.shape[:-2]):
        plane = out[lead].reshape(-1)
        for value, to in zip(g[lead].reshape(-1), index[lead].reshape(-1), strict=True):
            plane[to] = plane[to] + value
    return [out]


IMAGE = {
    "aten._native_batch_norm_legit_functional": _batch_norm,
    "aten._native_batch_norm_legit_no_training": _by_running,
    "aten.native_batch_norm_backward": _backward,
    "aten.max_pool2d_with_indices": _max_pool,
    "aten.max_pool2d_with_indices_backward": _max_pool_backward,
}
