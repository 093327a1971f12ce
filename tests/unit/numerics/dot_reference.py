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
    terms = taps.reshape(x.shape[0], groups, 1, w[:1].size, *out).transpose(0, 1, 2, 4, 5, 3)
    result = dot(terms, w.reshape(groups, w.shape[0] // groups, 1, 1, w[:1].size))
    result = result.reshape(x.shape[0], w.shape[0], *out)
    if bias is not None:
        with quiet():
            result = canonical(result + bias[:, None, None])
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
    """NUMERICS 2.7; `shape` is the input's."""
    n, _, h, v = shape
    outs, cg, kh, kw = w.shape
    before = (kh - 1) * dilation[0], (kw - 1) * dilation[1]
    # Every gradient at its place, stride apart, with +0 between and around them.
    sizes = [
        before[d] + max((grad.shape[2 + d] - 1) * stride[d] + 1, shape[2 + d] + padding[d])
        for d in range(2)
    ]
    spread = np.zeros((n, outs, *sizes), np.float32)
    room = spread[:, :, before[0] :: stride[0], before[1] :: stride[1]]
    room[:, :, : grad.shape[2], : grad.shape[3]] = grad
    terms = np.empty((n, outs, kh, kw, h, v), np.float32)
    for i in range(kh):
        for j in range(kw):
            y = before[0] + padding[0] - i * dilation[0]
            x = before[1] + padding[1] - j * dilation[1]
            terms[:, :, i, j] = spread[:, :, y : y + h, x : x + v]
    og = outs // groups
    terms = terms.reshape(n, groups, 1, og * kh * kw, h, v).transpose(0, 1, 2, 4, 5, 3)
    weights = w.reshape(groups, og, cg, kh * kw).transpose(0, 2, 1, 3)
    return dot(terms, weights.reshape(groups, cg, 1, 1, og * kh * kw)).reshape(shape)


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
    k = grad[:, :1].size
    terms = taps.transpose(1, 2, 3, 0, 4, 5).reshape(groups, 1, *shape[1:], k)
    grads = grad.transpose(1, 0, 2, 3).reshape(groups, shape[0] // groups, 1, 1, 1, k)
    return dot(grads, terms).reshape(shape)
