"""`exact/1`: integers of groups and exact blocks, element by element in fractions (NUMERICS 17).

`outputs(op, attrs, inputs, b)` are an operator's outputs. The DOT of 17.7 and the steps after a DOT
are those of reference/dot.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from reference import dot as ordered
from reference.floats import F32, rn32

Array = np.ndarray
LENGTH = {8: 256, 15: 1024, 22: 2048}
# A segment: the left group, the right group, and the factors of its terms in order.
Segment = tuple[Sequence[float], Sequence[float], list[tuple[float, float]]]


@lru_cache(maxsize=1 << 16)  # an element has a part in many sums
def integer(x: float, mu: float, b: int) -> int:
    """m(x) in a group of largest magnitude mu, finite and not 0 (17.4)."""
    e = math.frexp(mu)[1]  # mu = f·2^e with 1/2 <= f < 1: the least e with mu < 2^e
    assert Fraction(mu) < Fraction(2) ** e <= 2 * Fraction(mu)
    m = round(Fraction(x) * Fraction(2) ** (b - 1 - e))  # ties to even
    return 127 if b == 8 and m == 128 else m


def segments_of(outer: int, inner: int, b: int) -> list[range]:
    """The outer values of each segment (17.2)."""
    step = max(1, LENGTH[b] // inner) if inner else 1
    return [range(at, min(at + step, outer)) for at in range(0, outer, step)]


def dot(segments: Sequence[Segment], b: int) -> np.float32:
    """DOT by 17.4 to 17.7."""
    members = [float(x) for left, right, _ in segments for x in (*left, *right)]
    if not all(math.isfinite(x) for x in members):
        a = np.array([x for _, _, terms in segments for x, _ in terms], F32)
        c = np.array([x for _, _, terms in segments for _, x in terms], F32)
        return F32(ordered.dot(a, c))
    total: float | None = None
    for left, right, terms in segments:
        mu, nu = (max((abs(float(x)) for x in group), default=0.0) for group in (left, right))
        for at in range(0, len(terms), LENGTH[b]):
            value = 0.0
            if mu and nu:
                block = terms[at : at + LENGTH[b]]
                whole = sum(integer(float(x), mu, b) * integer(float(y), nu, b) for x, y in block)
                assert abs(whole) <= 2**53
                scale = math.frexp(mu)[1] + math.frexp(nu)[1] - 2 * (b - 1)
                exact = Fraction(whole) * Fraction(2) ** scale
                value = exact.numerator / exact.denominator
                assert Fraction(value) == exact
            total = value if total is None else total + value
    return F32(total if total is not None else 0.0)


def product(a: Array, x: Array, b: int) -> Array:
    """The DOTs of mm, or of bmm (17.3)."""
    out = np.zeros((*a.shape[:-1], x.shape[-1]), F32)
    for at in np.ndindex(*out.shape):
        row, column = a[at[:-1]], x[(*at[:-2], slice(None), at[-1])]
        parts = [
            (row[s.start : s.stop], column[s.start : s.stop],
             list(zip(row[s.start : s.stop], column[s.start : s.stop], strict=True)))
            for s in segments_of(len(row), 1, b)
        ]  # fmt: skip
        out[at] = dot(parts, b)
    return out


def _addmm(attrs: dict[str, Any], inputs: list[Any], b: int) -> list[Array]:
    c, left, right = inputs
    d = product(left, right, b)
    if attrs["alpha"] != 1:
        d = rn32(attrs["alpha"]) * d
    if attrs["beta"] != 0:
        d = d + (c if attrs["beta"] == 1 else rn32(attrs["beta"]) * c)
    return [np.asarray(d, F32)]


def _convolution(attrs: dict[str, Any], inputs: list[Any], b: int) -> list[Array]:
    x, w, bias = (*inputs, None)[:3]
    (sh, sw), (ph, pw), (dh, dw), groups = ordered._geometry(attrs)
    outs, per_group, kh, kw = w.shape
    oh = (x.shape[2] + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    ow = (x.shape[3] + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    out = np.zeros((x.shape[0], outs, oh, ow), F32)
    for n, o, y, z in np.ndindex(*out.shape):
        first = o // (outs // groups) * per_group
        parts: list[Segment] = []
        for s in segments_of(per_group, kh * kw, b):
            terms = [
                (w[o, c, i, j],
                 ordered._tap(x, n, first + c, y * sh - ph + i * dh, z * sw - pw + j * dw))
                for c in s for i in range(kh) for j in range(kw)
            ]  # fmt: skip
            image = x[n, first + s.start : first + s.stop].reshape(-1)
            parts.append((w[o, s.start : s.stop].reshape(-1), image, terms))
        out[n, o, y, z] = dot(parts, b)
    if bias is not None:
        out = np.asarray(out + bias[:, None, None], F32)
    return [out]


def _input_gradient(grad: Array, x: Array, w: Array, attrs: Any, b: int) -> Array:
    (sh, sw), (ph, pw), (dh, dw), groups = ordered._geometry(attrs)
    outs, per_group, kh, kw = w.shape
    og = outs // groups
    out = np.zeros(x.shape, F32)

    def seen(n: int, o: int, row: int, col: int) -> np.float32:
        if row % sh or col % sw:
            return F32(0)
        return ordered._tap(grad, n, o, row // sh, col // sw)

    for n, c, h, v in np.ndindex(*out.shape):
        group, own = divmod(c, per_group)
        parts: list[Segment] = []
        for s in segments_of(og, kh * kw, b):
            channels = range(group * og + s.start, group * og + s.stop)
            terms = [
                (seen(n, o, h + ph - i * dh, v + pw - j * dw), w[o, own, i, j])
                for o in channels for i in range(kh) for j in range(kw)
            ]  # fmt: skip
            span = slice(channels.start, channels.stop)
            parts.append((grad[n, span].reshape(-1), w[span, own].reshape(-1), terms))
        out[n, c, h, v] = dot(parts, b)
    return out


def _weight_gradient(grad: Array, x: Array, w: Array, attrs: Any, b: int) -> Array:
    (sh, sw), (ph, pw), (dh, dw), groups = ordered._geometry(attrs)
    outs, per_group = w.shape[:2]
    oh, ow = grad.shape[2:]
    out = np.zeros(w.shape, F32)
    for o, c, i, j in np.ndindex(*out.shape):
        channel = o // (outs // groups) * per_group + c
        parts: list[Segment] = []
        for s in segments_of(x.shape[0], oh * ow, b):
            terms = [
                (grad[n, o, y, z],
                 ordered._tap(x, n, channel, y * sh - ph + i * dh, z * sw - pw + j * dw))
                for n in s for y in range(oh) for z in range(ow)
            ]  # fmt: skip
            span = slice(s.start, s.stop)
            parts.append((grad[span, o].reshape(-1), x[span, channel].reshape(-1), terms))
        out[o, c, i, j] = dot(parts, b)
    return out


def _backward(attrs: dict[str, Any], inputs: list[Any], b: int) -> list[Array]:
    grad, x, w = inputs
    makers: list[Callable[[], Array]] = [
        lambda: _input_gradient(grad, x, w, attrs, b),
        lambda: _weight_gradient(grad, x, w, attrs, b),
        lambda: np.array([ordered.total(grad[:, o]) for o in range(grad.shape[1])], F32),
    ]
    return [make() for make, on in zip(makers, attrs["output_mask"], strict=True) if on]


_OPERATORS: dict[str, Callable[[dict[str, Any], list[Any], int], list[Array]]] = {
    "aten.mm": lambda _, x, b: [product(x[0], x[1], b)],
    "aten.bmm": lambda _, x, b: [product(x[0], x[1], b)],
    "aten.addmm": _addmm,
    "aten.convolution": _convolution,
    "aten.convolution_backward": _backward,
}


def outputs(op: str, attrs: dict[str, Any], inputs: Sequence[Any], b: int) -> list[Array]:
    """The operator's outputs under `exact/1;b=b`, NaNs canonical (1.5)."""
    with np.errstate(all="ignore"):
        made = _OPERATORS[op](attrs, list(inputs), b)
    for out in made:
        out[np.isnan(out)] = np.uint32(0x7FC00000).view(F32)
    return made
