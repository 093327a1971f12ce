"""The dot class in plain numpy, straight from NUMERICS 2: slow, obvious, and exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from reference.floats import canonical, fma

CHUNK = 128


@contextmanager
def quiet() -> Iterator[None]:
    """Overflow, underflow and NaN are ordinary values here."""
    with np.errstate(all="ignore"):
        yield


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """DOT along the last axis of broadcastable f32 arrays (NUMERICS 2.1, 2.2)."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    a, b = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
    total = np.zeros(shape[:-1], np.float32)
    with quiet():
        for start in range(0, shape[-1], CHUNK):
            p = np.zeros(shape[:-1], np.float32)
            for k in range(start, min(start + CHUNK, shape[-1])):
                p = fma(a[..., k], b[..., k], p)
            total = p if start == 0 else total + p
    return canonical(total)


def mm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NUMERICS 2.4."""
    return dot(a[:, None, :], b.T[None, :, :])


def bmm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NUMERICS 2.4."""
    return dot(a[:, :, None, :], b.transpose(0, 2, 1)[:, None, :, :])


def addmm(c: np.ndarray, a: np.ndarray, b: np.ndarray, beta: float, alpha: float) -> np.ndarray:
    """NUMERICS 2.5."""
    d = mm(a, b)
    with quiet():
        if alpha != 1:
            d = np.float32(alpha) * d
        if beta != 0:
            term = np.broadcast_to(c, d.shape)
            if beta != 1:
                term = np.float32(beta) * term
            d = d + term
    return canonical(np.asarray(d, np.float32))


def _padded(x: np.ndarray, padding: tuple[int, int]) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))


def _taps(
    x: np.ndarray,
    out: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> np.ndarray:
    """[n, C, kh, kw, OH, OW]: the padded input tap each output reads."""
    padded = _padded(x, padding)
    taps = np.empty((*x.shape[:2], *kernel, *out), np.float32)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = [y * stride[0] + i * dilation[0] for y in range(out[0])]
            cols = [z * stride[1] + j * dilation[1] for z in range(out[1])]
            taps[:, :, i, j] = padded[:, :, rows][:, :, :, cols]
    return taps


def convolution(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None,
    out: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> np.ndarray:
    """NUMERICS 2.6; `out` is (OH, OW)."""
    taps = _taps(x, out, w.shape[2:], stride, padding, dilation)
    cg, og = x.shape[1] // groups, w.shape[0] // groups
    result = np.empty((x.shape[0], w.shape[0], *out), np.float32)
    for o in range(w.shape[0]):
        g = o // og
        b = (
            taps[:, g * cg : (g + 1) * cg]
            .reshape(x.shape[0], w[o].size, *out)
            .transpose(0, 2, 3, 1)
        )
        result[:, o] = dot(b, w[o].reshape(-1))
        if bias is not None:
            with quiet():
                result[:, o] = canonical(result[:, o] + bias[o])
    return result


def input_grad(
    grad: np.ndarray,
    w: np.ndarray,
    shape: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> np.ndarray:
    """NUMERICS 2.7, element by element; `shape` is the input's."""
    cg, og = shape[1] // groups, w.shape[0] // groups
    out = np.empty(shape, np.float32)
    for c in range(shape[1]):
        g, cc = divmod(c, cg)
        weights = w[g * og : (g + 1) * og, cc].reshape(-1)
        for h in range(shape[2]):
            for v in range(shape[3]):
                terms = np.zeros((shape[0], og, *w.shape[2:]), np.float32)
                for i in range(w.shape[2]):
                    for j in range(w.shape[3]):
                        ty, tx = h + padding[0] - i * dilation[0], v + padding[1] - j * dilation[1]
                        if ty % stride[0] or tx % stride[1]:
                            continue
                        y, x = ty // stride[0], tx // stride[1]
                        if 0 <= y < grad.shape[2] and 0 <= x < grad.shape[3]:
                            terms[:, :, i, j] = grad[:, g * og : (g + 1) * og, y, x]
                out[:, c, h, v] = dot(terms.reshape(shape[0], weights.size), weights)
    return out


def weight_grad(
    grad: np.ndarray,
    x: np.ndarray,
    shape: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> np.ndarray:
    """NUMERICS 2.7; `shape` is the weight's."""
    taps = _taps(x, grad.shape[2:], shape[2:], stride, padding, dilation)
    cg, og = x.shape[1] // groups, shape[0] // groups
    out = np.empty(shape, np.float32)
    for o in range(shape[0]):
        g = o // og
        terms = grad[:, o].reshape(-1)
        b = taps[:, g * cg : (g + 1) * cg].transpose(1, 2, 3, 0, 4, 5)
        out[o] = dot(b.reshape(*shape[1:], terms.size), terms)
    return out
