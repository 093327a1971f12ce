"""Products and convolutions (OPENING 7.3): factors, chains and what follows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference.floats import F32, fma, rn32
from reference.judge.quantities import Element, Q, at, bcast

Factor = Any  # number k -> position, or None where the factor is +0


@dataclass
class Dot:
    """K products a(k)·b(k): each factor an operand and its positions, in the order of reading."""

    name: str
    length: int
    first: tuple[int, Factor]
    second: tuple[int, Factor]


def side(x: Element, name: str) -> tuple[int, int]:
    v = x.attrs[name]
    return v[0], v[-1]


def factor(read: Any, of: tuple[int, Factor], numbers: range) -> Any:
    """The factor's values; a tap outside is +0 and is not read (7.3.4)."""
    k, place = of
    places = [place(i) for i in numbers]
    found = iter((yield from read(k, [f for f in places if f is not None])))
    return [F32(0) if f is None else next(found) for f in places]


def product(x: Element) -> Dot:
    left, right = (1, 2) if x.op == "aten.addmm" else (0, 1)
    m, k = x.shape(left)[-2:]
    n = x.shape(right)[-1]
    row, j = x.e // n, x.e % n
    right_at = lambda i: (row // m) * k * n + i * n + j  # noqa: E731
    return Dot("dot", k, (left, lambda i: row * k + i), (right, right_at))


def tap(x: Element, k: int, m: int, channel: int, r: int, q: int) -> int | None:
    _, c, h, w = x.shape(k)
    inside = 0 <= r < h and 0 <= q < w
    return ((m * c + channel) * h + r) * w + q if inside else None


def convolution(x: Element) -> Dot:
    f, d, h, v = x.shape(1)
    s, p, dil = (side(x, n) for n in ("stride", "padding", "dilation"))
    m, o, y, z = at(x.e, x.out[1])
    k = d * h * v
    group = o // (f // x.attrs["groups"])

    def a(n: int) -> int | None:
        c, i, j = n // (h * v), n // v % h, n % v
        r, q = y * s[0] - p[0] + i * dil[0], z * s[1] - p[1] + j * dil[1]
        return tap(x, 0, m, group * d + c, r, q)

    return Dot("dot", k, (0, a), (1, lambda n: o * k + n))


def input_gradient(x: Element) -> Dot:
    f, d, h, v = x.shape(2)
    _, _, high, wide = x.shape(0)
    s, p, dil = (side(x, n) for n in ("stride", "padding", "dilation"))
    m, t, y, q = at(x.e, x.out[1])
    per = f // x.attrs["groups"]

    def out(n: int) -> int:
        return (t // d) * per + n // (h * v)

    def a(n: int) -> int | None:
        r = y + p[0] - (n // v % h) * dil[0]
        c = q + p[1] - (n % v) * dil[1]
        if r % s[0] or c % s[1] or not (0 <= r // s[0] < high and 0 <= c // s[1] < wide):
            return None
        return ((m * f + out(n)) * high + r // s[0]) * wide + c // s[1]

    b = lambda n: (out(n) * d + t % d) * h * v + n % (h * v)  # noqa: E731
    return Dot("input gradient", per * h * v, (0, a), (2, b))


def weight_gradient(x: Element) -> Dot:
    count, f, high, wide = x.shape(0)
    d = x.shape(2)[1]
    s, p, dil = (side(x, n) for n in ("stride", "padding", "dilation"))
    o, c, i, j = at(x.e, x.out[1])
    channel = (o // (f // x.attrs["groups"])) * d + c
    plane = high * wide

    def b(n: int) -> int | None:
        r = (n // wide % high) * s[0] - p[0] + i * dil[0]
        q = (n % wide) * s[1] - p[1] + j * dil[1]
        return tap(x, 1, n // plane, channel, r, q)

    a = lambda n: ((n // plane) * f + o) * plane + n % plane  # noqa: E731
    return Dot("weight gradient", count * plane, (1, b), (0, a))


def masked(x: Element) -> int:
    """The output's position in `output_mask` (6.1)."""
    there = [k for k, on in enumerate(x.attrs["output_mask"]) if on]
    return there[x.output]


def dot_of(x: Element) -> Dot | None:
    """The products of an element; None of a bias gradient."""
    if x.op == "aten.convolution":
        return convolution(x)
    if x.op == "aten.convolution_backward":
        makers = (input_gradient, weight_gradient)
        k = masked(x)
        return makers[k](x) if k < 2 else None
    return product(x)


def chain(dot: Dot) -> Q:
    """7.3.1."""

    def f(read: Any, first: int, last: int, state: Any) -> Any:
        for c in range(first, last):
            numbers = range(128 * c, min(128 * (c + 1), dot.length))
            a = yield from factor(read, dot.first, numbers)
            b = yield from factor(read, dot.second, numbers)
            p = F32(0)
            for u, v in zip(a, b, strict=True):
                p = fma(u, v, p)[()]
            state = p if c == 0 else state + p
        return state

    return Q("chain", "f32", dot.name, f, count=-(-dot.length // 128), stretch=1)


def bias_gradient(x: Element) -> tuple[int, Any]:
    n, f, high, wide = x.shape(0)
    plane = high * wide
    return n * plane, lambda i: ((i // plane) * f + x.e) * plane + i % plane


def after(x: Element, read: Any, d: Any) -> Any:
    """7.3.8, or the bias of 7.3.7."""
    if x.op == "aten.convolution":
        o = at(x.e, x.out[1])[1]
        return d + (yield from read(2, [o]))[0]
    alpha, beta = x.attrs["alpha"], x.attrs["beta"]
    if alpha != 1:
        d = rn32(alpha) * d
    if beta == 0:
        return d
    c = (yield from read(0, [bcast(x.e, x.out[1], x.shape(0))]))[0]
    return d + (c if beta == 1 else rn32(beta) * c)


def tree(x: Element) -> Q:
    dot = dot_of(x)
    if dot is None:
        count, place = bias_gradient(x)

        def f(read: Any, numbers: range) -> Any:
            return (yield from read(0, [place(i) for i in numbers]))

        return Q("tree", "f32", "bias gradient", f, count=count)
    inner = chain(dot)
    plain = x.op == "aten.addmm" and x.attrs["alpha"] == 1 and x.attrs["beta"] == 0
    if (x.op == "aten.addmm" and not plain) or (x.op == "aten.convolution" and x.has(2)):
        return Q("local", "f32", "out", lambda read, d: after(x, read, d), [inner])
    return inner


NAMES = "mm bmm addmm convolution convolution_backward".split()
DOT: dict[str, Any] = {f"aten.{n}": tree for n in NAMES}
