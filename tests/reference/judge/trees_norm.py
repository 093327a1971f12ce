"""Softmax, layer norm, batch norm and max pooling (OPENING 7.6 to 7.8)."""

from __future__ import annotations

import math
from typing import Any

from reference.floats import F64, rn32
from reference.judge.either import by_count, call, fma, narrow, rounded, sqrt, wide
from reference.judge.quantities import Element, Q
from reference.judge.trees_dot import masked
from reference.judge.trees_move import one
from reference.judge.trees_point import done


def exp(v: Any) -> Any:
    return call("exp", v)


def local(name: str, f: Any, *needs: Q, dtype: str = "f32") -> Q:
    """A local that reads nothing."""
    return Q("local", dtype, name, lambda _r, *n: done(f(*n)), list(needs))


def sums(name: str, count: int, f: Any, *needs: Q, dtype: str = "f32") -> Q:
    """A tree whose terms are f(the elements read, …): f is a generator of (read, numbers, …)."""
    return Q("tree", dtype, name, f, list(needs), count=count)


def row(x: Element) -> tuple[int, Any]:
    """7.6.1."""
    shape = x.out[1] or (1,)
    a = x.axis(len(shape))
    n, inner = shape[a], math.prod(shape[a + 1 :])
    base = (x.e // (n * inner)) * (n * inner) + x.e % inner
    return n, lambda i: base + i * inner


def softmax(x: Element) -> Q:
    n, p = row(x)
    m = Q("extremum", "f32", "m", p, count=n)

    def terms(read: Any, numbers: range, top: Any) -> Any:
        return exp((yield from read(0, [p(i) for i in numbers])) - top)

    s = sums("s", n, terms, m)

    def y(read: Any, top: Any, below: Any) -> Any:
        return exp((yield from one(read, 0, x.e)) - top) / below

    def log_y(read: Any, top: Any, lg: Any) -> Any:
        return ((yield from one(read, 0, x.e)) - top) - lg

    if x.op == "aten._softmax":
        return Q("local", "f32", "y", y, [m, s])
    return Q("local", "f32", "y", log_y, [m, local("l", lambda v: call("log", v), s)])


def softmax_backward(x: Element) -> Q:
    n, p = row(x)
    plain = x.op == "aten._softmax_backward_data"

    def terms(read: Any, numbers: range) -> Any:
        g = yield from read(0, [p(i) for i in numbers])
        return g * (yield from read(1, [p(i) for i in numbers])) if plain else g

    def out(read: Any, s: Any) -> Any:
        y = yield from one(read, 1, x.e)
        g = yield from one(read, 0, x.e)
        return y * (g - s) if plain else g - exp(y) * s

    return Q("local", "f32", "out", out, [sums("s", n, terms)])


def affine(x: Element, read: Any, h: Any, c: int) -> Any:
    """The y of NUMERICS 6.5, w and b being operands 1 and 2."""
    w = (yield from one(read, 1, c)) if x.has(1) else None
    b = (yield from one(read, 2, c)) if x.has(2) else None
    if w is not None and b is not None:
        return fma(h, w, b)
    if w is not None:
        return h * w
    return h + b if b is not None else h


def layer_norm(x: Element) -> Q:
    n = math.prod(x.attrs["normalized_shape"])
    r = x.e // n if x.output == 0 else x.e

    def plain(read: Any, numbers: range) -> Any:
        return (yield from read(0, [r * n + i for i in numbers]))

    def squares(read: Any, numbers: range, average: Any) -> Any:
        d = (yield from plain(read, numbers)) - average
        return d * d

    mean = local("mean", lambda s: by_count(s, n), sums("SUM(x)", n, plain))
    var = local("var", lambda s: by_count(s, n), sums("SUM(d*d)", n, squares, mean))
    eps = rn32(x.attrs["eps"])
    rstd = local("rstd", lambda v: call("rsqrt", v + eps), var)
    if x.output:
        return (mean, rstd)[x.output - 1]

    def y(read: Any, average: Any, scale: Any) -> Any:
        h = ((yield from one(read, 0, x.e)) - average) * scale
        return (yield from affine(x, read, h, x.e % n))

    return Q("local", "f32", "y", y, [mean, rstd])


def layer_norm_backward(x: Element) -> Q:
    n = math.prod(x.attrs["normalized_shape"])
    which, r, t = masked(x), x.e // n, x.e % n
    if which:
        rows = math.prod(x.shape(2))

        def column(read: Any, numbers: range) -> Any:
            g = yield from read(0, [x.e + i * n for i in numbers])
            if which == 2:
                return g
            v = yield from read(1, [x.e + i * n for i in numbers])
            m = yield from read(2, list(numbers))
            return g * ((v - m) * (yield from read(3, list(numbers))))

        return sums("dw" if which == 1 else "db", rows, column)

    def k_of(read: Any, numbers: range) -> Any:
        g = yield from read(0, [r * n + i for i in numbers])
        return g * (yield from read(4, list(numbers))) if x.has(4) else g

    def k_h(read: Any, numbers: range) -> Any:
        k = yield from k_of(read, numbers)
        v = yield from read(1, [r * n + i for i in numbers])
        m = yield from one(read, 2, r)
        return k * ((v - m) * (yield from one(read, 3, r)))

    s1 = local("s1", lambda s: by_count(s, n), sums("SUM(k)", n, k_of))
    s2 = local("s2", lambda s: by_count(s, n), sums("SUM(k*h)", n, k_h))

    def dx(read: Any, first: Any, second: Any) -> Any:
        k = yield from one(read, 0, x.e)
        if x.has(4):
            k = k * (yield from one(read, 4, t))
        v = yield from one(read, 1, x.e)
        m = yield from one(read, 2, r)
        rstd = yield from one(read, 3, r)
        return ((k - first) - ((v - m) * rstd) * second) * rstd

    return Q("local", "f32", "dx", dx, [s1, s2])


def channel(x: Element, k: int, whole: bool) -> tuple[int, int, Any]:
    """c, n and p(i) of 7.7.1; x is operand k."""
    shape = x.shape(k)
    j = math.prod(shape[2:])
    c = x.e // j % shape[1] if whole else x.e
    return c, shape[0] * j, lambda i: ((i // j) * shape[1] + c) * j + i % j


def scale_of(var: Any, eps: float) -> Any:
    """RN32(1 / √(var + eps)) (7.7.2)."""
    return narrow(F64(1) / sqrt(var + rounded(var, eps)))


def batch_norm(x: Element) -> Q:
    c, n, p = channel(x, 0, x.output == 0)
    size = F64(n)

    def plain(read: Any, numbers: range) -> Any:
        return wide((yield from read(0, [p(i) for i in numbers])))

    def squares(read: Any, numbers: range, m: Any) -> Any:
        d = (yield from plain(read, numbers)) - m
        return d * d

    m64 = local("m", lambda s: s / size, sums("SUM64(x)", n, plain, dtype="f64"), dtype="f64")
    q = sums("q", n, squares, m64, dtype="f64")
    mean = local("mean", narrow, m64)
    var = local("var", lambda v: v / size, q, dtype="f64")
    rstd = local("rstd", lambda v: scale_of(v, x.attrs["eps"]), var)
    rate = rn32(x.attrs["momentum"])

    def running(k: int) -> Any:
        def f(read: Any, new: Any) -> Any:
            old = yield from one(read, k, c)
            return fma(rate, new - old, old)

        return f

    def y(read: Any, average: Any, scale: Any) -> Any:
        h = ((yield from one(read, 0, x.e)) - average) * scale
        return (yield from affine(x, read, h, c))

    if x.output == 0:
        return Q("local", "f32", "y", y, [mean, rstd])
    if x.output < 3:
        return (mean, rstd)[x.output - 1]
    if x.output == 3:
        return Q("local", "f32", "running_mean", running(3), [mean])
    fewer = F64(max(n - 1, 0))
    u = local("u", narrow, local("q/(n - 1)", lambda v: v / fewer, q, dtype="f64"))
    return Q("local", "f32", "running_var", running(4), [u])


def by_running(x: Element) -> Q:
    c, _, _ = channel(x, 0, True)
    eps = rn32(x.attrs["eps"])

    def y(read: Any) -> Any:
        v = yield from one(read, 0, x.e)
        mean = yield from one(read, 3, c)
        rstd = call("rsqrt", (yield from one(read, 4, c)) + eps)
        return (yield from affine(x, read, (v - mean) * rstd, c))

    return Q("local", "f32", "y", y)


def batch_norm_backward(x: Element) -> Q:
    which, train = masked(x), x.attrs["train"]
    c, n, p = channel(x, 1, which == 0)
    a, b = (5, 6) if train else (3, 4)
    eps = rn32(x.attrs["eps"])

    def scale(read: Any) -> Any:
        v = yield from one(read, b, c)
        return v if train else call("rsqrt", v + eps)

    def g_of(read: Any, numbers: range) -> Any:
        return (yield from read(0, [p(i) for i in numbers]))

    def g_h(read: Any, numbers: range) -> Any:
        g = yield from g_of(read, numbers)
        v = yield from read(1, [p(i) for i in numbers])
        m = yield from one(read, a, c)
        return g * ((v - m) * (yield from scale(read)))

    dw, db = sums("dw", n, g_h), sums("db", n, g_of)
    if which:
        return (dw, db)[which - 1]

    def dx(read: Any, *s: Any) -> Any:
        out = yield from one(read, 0, x.e)
        if train:
            v = yield from one(read, 1, x.e)
            m = yield from one(read, a, c)
        rstd = yield from scale(read)
        if train:
            h = (v - m) * rstd
            out = fma(-h, s[1], out - s[0])
        r = rstd * (yield from one(read, 2, c)) if x.has(2) else rstd
        return out * r

    s1 = local("s1", lambda s: by_count(s, n), db)
    s2 = local("s2", lambda s: by_count(s, n), dw)
    return Q("local", "f32", "dx", dx, [s1, s2] if train else [])


def taps(x: Element, axis: int, j: int) -> list[int]:
    """7.8.1; axis 0 is H, 1 is W."""
    names = ("kernel_size", "stride", "padding", "dilation")
    k, s, p, d = ((x.attrs[n][0], x.attrs[n][-1])[axis] for n in names)
    size = x.shape(0)[-2:][axis]
    return [t for t in (j * s - p + i * d for i in range(k)) if 0 <= t < size]


def max_pool(x: Element) -> Q:
    h, w = x.shape(0)[-2:]
    high, wide = x.out[1][-2:]
    plane = x.e // (wide * high)
    r, q = taps(x, 0, x.e // wide % high), taps(x, 1, x.e % wide)
    n = len(r) * len(q)
    place = lambda i: r[(i % n) // len(q)] * w + q[(i % n) % len(q)]  # noqa: E731
    tap = Q("extremum", "i64", "tap", None, count=n, word="argmax")
    tap.f = lambda i: plane * h * w + place(i)
    if x.output:
        return local("index", place, tap, dtype="i64")
    return Q("local", "f32", "y", lambda read, t: one(read, 0, plane * h * w + place(t)), [tap])


NORM: dict[str, Any] = {
    "aten._softmax": softmax,
    "aten._log_softmax": softmax,
    "aten._softmax_backward_data": softmax_backward,
    "aten._log_softmax_backward_data": softmax_backward,
    "aten.native_layer_norm": layer_norm,
    "aten.native_layer_norm_backward": layer_norm_backward,
    "aten._native_batch_norm_legit_functional": batch_norm,
    "aten._native_batch_norm_legit_no_training": by_running,
    "aten.native_batch_norm_backward": batch_norm_backward,
    "aten.max_pool2d_with_indices": max_pool,
}
