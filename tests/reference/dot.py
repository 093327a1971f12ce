"""The dot class: DOT, products, convolution and its gradients (NUMERICS 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.floats import F32, fma, rn32
from reference.sums import total

Inputs = list[Any]
CHUNK = 128


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """DOT along the last axis of a and b, broadcast over the others (2.1, 2.2)."""
    a, b = np.broadcast_arrays(np.asarray(a, F32), np.asarray(b, F32))
    length = a.shape[-1]
    result = np.zeros(a.shape[:-1], F32)
    for c in range(0, length, CHUNK):
        p = np.zeros(a.shape[:-1], F32)
        for k in range(c, min(c + CHUNK, length)):
            p = fma(a[..., k], b[..., k], p)
        result = p if c == 0 else result + p
    return np.asarray(result, F32)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """out[..., i, j] = DOT(a[..., i, :], b[..., :, j]) (2.4)."""
    return dot(a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :])


def _addmm(attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    c, a, b = inputs
    alpha, beta = attrs["alpha"], attrs["beta"]
    d = product(a, b)
    if alpha != 1:
        d = rn32(alpha) * d
    if beta == 0:
        return [d]
    c = np.broadcast_to(c, d.shape)
    if beta != 1:
        c = rn32(beta) * c
    return [d + c]


def _pair(value: Any) -> tuple[int, int]:
    value = tuple(value)
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


def _geometry(attrs: dict[str, Any]) -> tuple[Any, Any, Any, int]:
    return (
        _pair(attrs["stride"]),
        _pair(attrs["padding"]),
        _pair(attrs["dilation"]),
        attrs["groups"],
    )


def _tap(x: np.ndarray, n: int, c: int, row: int, col: int) -> np.float32:
    """The input at (row, col), +0 outside (2.6)."""
    inside = 0 <= row < x.shape[2] and 0 <= col < x.shape[3]
    return F32(x[n, c, row, col]) if inside else F32(0.0)


def _convolution(attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    x, w = inputs[:2]
    bias = inputs[2] if len(inputs) > 2 else None
    (sh, sw), (ph, pw), (dh, dw), groups = _geometry(attrs)
    outs, per_group, kh, kw = w.shape
    oh = (x.shape[2] + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    ow = (x.shape[3] + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    taps = np.zeros((x.shape[0], groups, oh, ow, per_group * kh * kw), F32)
    for n, g, y, z in np.ndindex(x.shape[0], groups, oh, ow):
        taps[n, g, y, z] = [
            _tap(x, n, g * per_group + c, y * sh - ph + i * dh, z * sw - pw + j * dw)
            for c, i, j in np.ndindex(per_group, kh, kw)
        ]
    out = np.zeros((x.shape[0], outs, oh, ow), F32)
    for o in range(outs):
        out[:, o] = dot(w[o].reshape(-1), taps[:, o // (outs // groups)])
        if bias is not None:
            out[:, o] = out[:, o] + bias[o]
    return [out]


def _input_grad(grad: np.ndarray, x: np.ndarray, w: np.ndarray, attrs: Any) -> np.ndarray:
    (sh, sw), (ph, pw), (dh, dw), groups = _geometry(attrs)
    outs, per_group, kh, kw = w.shape
    og = outs // groups

    def grad_at(n: int, o: int, h: int, v: int, i: int, j: int) -> np.float32:
        row, col = h + ph - i * dh, v + pw - j * dw
        if row % sh or col % sw:
            return F32(0.0)
        return _tap(grad, n, o, row // sh, col // sw)

    out = np.zeros(x.shape, F32)
    for g in range(groups):
        order = list(np.ndindex(og, kh, kw))
        seen = np.zeros((x.shape[0], x.shape[2], x.shape[3], len(order)), F32)
        for n, h, v in np.ndindex(x.shape[0], x.shape[2], x.shape[3]):
            seen[n, h, v] = [grad_at(n, g * og + o, h, v, i, j) for o, i, j in order]
        for c in range(per_group):
            weights = w[g * og : (g + 1) * og, c].reshape(-1)
            out[:, g * per_group + c] = dot(seen, weights)
    return out


def _weight_grad(grad: np.ndarray, x: np.ndarray, w: np.ndarray, attrs: Any) -> np.ndarray:
    (sh, sw), (ph, pw), (dh, dw), groups = _geometry(attrs)
    outs, per_group = w.shape[:2]
    order = list(np.ndindex(x.shape[0], grad.shape[2], grad.shape[3]))
    out = np.zeros(w.shape, F32)
    for o, c, i, j in np.ndindex(*w.shape):
        channel = o // (outs // groups) * per_group + c
        values = [grad[n, o, y, z] for n, y, z in order]
        taps = [
            _tap(x, n, channel, y * sh - ph + i * dh, z * sw - pw + j * dw) for n, y, z in order
        ]
        out[o, c, i, j] = dot(np.array(values, F32), np.array(taps, F32))
    return out


def _convolution_backward(attrs: dict[str, Any], inputs: Inputs) -> list[np.ndarray]:
    grad, x, w = inputs
    makers = (
        lambda: _input_grad(grad, x, w, attrs),
        lambda: _weight_grad(grad, x, w, attrs),
        lambda: np.array([total(grad[:, o]) for o in range(grad.shape[1])], F32),
    )
    return [make() for make, on in zip(makers, attrs["output_mask"], strict=True) if on]


DOTS = {
    "aten.mm": lambda a, x: [product(x[0], x[1])],
    "aten.bmm": lambda a, x: [product(x[0], x[1])],
    "aten.addmm": _addmm,
    "aten.convolution": _convolution,
    "aten.convolution_backward": _convolution_backward,
}
