"""The rounded operators from NUMERICS 13.3 in plain Python: lists of terms, summed as integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from reference.floats import canonical
from reference.rounded import patterns, products, rounded_sum

Terms = list[float]


def _filled(shape: tuple[int, ...], bits: int, terms: Callable[..., Terms]) -> np.ndarray:
    places = itertools.product(*(range(n) for n in shape))
    return patterns([rounded_sum(terms(*at), bits) for at in places]).reshape(shape)


def mm(a: np.ndarray, b: np.ndarray, bits: int) -> np.ndarray:
    shape = (a.shape[0], b.shape[1])
    return _filled(shape, bits, lambda i, j: products(a[i], b[:, j]))


def bmm(a: np.ndarray, b: np.ndarray, bits: int) -> np.ndarray:
    shape = (a.shape[0], a.shape[1], b.shape[2])
    return _filled(shape, bits, lambda g, i, j: products(a[g, i], b[g, :, j]))


def addmm(
    c: np.ndarray, a: np.ndarray, b: np.ndarray, bits: int, beta: float, alpha: float
) -> np.ndarray:
    shape = (a.shape[0], b.shape[1])
    wide = np.broadcast_to(c, shape)
    if alpha == 1 and beta == 1:
        return _filled(shape, bits, lambda i, j: [*products(a[i], b[:, j]), float(wide[i, j])])
    with np.errstate(all="ignore"):
        d = mm(a, b, bits)
        if alpha != 1:
            d = np.float32(alpha) * d
        if beta != 0:
            d = d + (wide if beta == 1 else np.float32(beta) * wide)
    return canonical(np.asarray(d, np.float32))


def _taps(
    kernel: tuple[int, ...],
    place: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Iterator[tuple[int, int, int, int]]:
    for i, j in itertools.product(range(kernel[0]), range(kernel[1])):
        yield (
            i,
            j,
            place[0] * stride[0] + i * dilation[0] - padding[0],
            place[1] * stride[1] + j * dilation[1] - padding[1],
        )


def _at(x: np.ndarray, y: int, z: int) -> np.float32:
    return x[y, z] if 0 <= y < x.shape[0] and 0 <= z < x.shape[1] else np.float32(0)


def convolution(x, w, bias, shape, bits, *, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    """2.6 with the sum of 13.3."""
    channels = w.shape[1]

    def terms(n: int, o: int, y: int, z: int) -> Terms:
        first = o // (w.shape[0] // groups) * channels
        taken, weights = [], []
        for c in range(channels):
            for i, j, h, v in _taps(w.shape[2:], (y, z), stride, padding, dilation):
                taken.append(_at(x[n, first + c], h, v))
                weights.append(w[o, c, i, j])
        found = products(np.array(taken), np.array(weights))
        return found if bias is None else [*found, float(bias[o])]

    return _filled(shape, bits, terms)


def input_gradient(grad, x_shape, w, bits, *, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    """2.7, first part."""
    per_group = w.shape[0] // groups

    def terms(n: int, c: int, h: int, v: int) -> Terms:
        group = c // w.shape[1]
        taken, weights = [], []
        for o in range(group * per_group, (group + 1) * per_group):
            for i, j in itertools.product(range(w.shape[2]), range(w.shape[3])):
                y, ry = divmod(h + padding[0] - i * dilation[0], stride[0])
                z, rz = divmod(v + padding[1] - j * dilation[1], stride[1])
                whole = ry == 0 and rz == 0
                taken.append(_at(grad[n, o], y, z) if whole else np.float32(0))
                weights.append(w[o, c % w.shape[1], i, j])
        return products(np.array(taken), np.array(weights))

    return _filled(x_shape, bits, terms)


def weight_gradient(grad, x, w_shape, bits, *, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    """2.7, second part."""
    per_group = w_shape[0] // groups

    def terms(o: int, c: int, i: int, j: int) -> Terms:
        first = o // per_group * w_shape[1]
        taken, gradients = [], []
        for n, y, z in np.ndindex(grad.shape[0], *grad.shape[2:]):
            h = y * stride[0] + i * dilation[0] - padding[0]
            v = z * stride[1] + j * dilation[1] - padding[1]
            taken.append(_at(x[n, first + c], h, v))
            gradients.append(grad[n, o, y, z])
        return products(np.array(taken), np.array(gradients))

    return _filled(w_shape, bits, terms)


def bias_gradient(grad: np.ndarray, bits: int) -> np.ndarray:
    """2.7, last part."""
    return _filled((grad.shape[1],), bits, lambda o: [float(v) for v in grad[:, o].reshape(-1)])


def sums(x: np.ndarray, axes: tuple[int, ...], bits: int, mean: bool) -> np.ndarray:
    """13.3 of aten.sum and aten.mean over `axes`, keepdim off."""
    kept = [i for i in range(x.ndim) if i not in axes]
    terms = math.prod(x.shape[i] for i in axes)
    rows = x.transpose((*kept, *axes)).reshape((*(x.shape[i] for i in kept), terms))
    total = _filled(rows.shape[:-1], bits, lambda *at: [float(v) for v in rows[at]])
    if mean:
        with np.errstate(all="ignore"):
            total = canonical(np.asarray(total / np.float32(rows.shape[-1]), np.float32))
    return total
