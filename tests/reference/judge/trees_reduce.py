"""Reductions and cumulative sums (OPENING 7.4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference.floats import F32, F64
from reference.judge.either import by_count, narrow, wide
from reference.judge.quantities import Element, Q, added, at
from reference.judge.trees_point import done
from reference.sums import axes_of


def places(x: Element) -> tuple[int, Any]:
    """n and the position of x(i) in operand 0 (7.4.1)."""
    shape = x.shape(0)
    axes = axes_of(x.attrs, len(shape))
    others = [a for a in range(len(shape)) if a not in axes]
    stride = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    kept = at(x.e, tuple(shape[a] for a in others))
    base = sum(c * stride[a] for a, c in zip(others, kept, strict=True))
    sizes = tuple(shape[a] for a in axes)

    def place(i: int) -> int:
        return base + sum(c * stride[a] for a, c in zip(axes, at(i, sizes), strict=True))

    return math.prod(sizes), place


def terms(x: Element, name: str, of: Any, dtype: str = "f32", needs: Any = ()) -> Q:
    n, place = places(x)

    def f(read: Any, numbers: range, *agreed: Any) -> Any:
        return of((yield from read(0, [place(i) for i in numbers])), *agreed)

    return Q("tree", dtype, name, f, list(needs), count=n)


def total(x: Element) -> Q:
    if x.out[0] == "i64":
        return terms(x, "SUM(x)", lambda v: v.astype(np.int64), "i64")
    return terms(x, "SUM(x)", lambda v: v)


def mean(x: Element) -> Q:
    n, _ = places(x)
    return Q("local", "f32", "mean", lambda _r, s: done(by_count(s, n)), [total(x)])


def extreme(word: str) -> Any:
    def make(x: Element) -> Q:
        n, place = places(x)
        return Q("extremum", x.out[0], word, place, count=n, word=word)

    return make


def var_mean(x: Element) -> Q:
    n, _ = places(x)
    sums = terms(x, "SUM64(x)", wide, "f64")
    average = Q("local", "f64", "mean", lambda _r, s: done(s / F64(n)), [sums])
    if x.output == 1:
        return Q("local", "f32", "RN32(mean)", lambda _r, m: done(narrow(m)), [average])

    def squares(v: Any, m: Any) -> Any:
        d = wide(v) - m
        return d * d

    q = terms(x, "SUM64(d*d)", squares, "f64", [average])
    d = F64(max(float(n) - x.attrs["correction"], 0.0))
    return Q("local", "f32", "RN32(var)", lambda _r, s: done(narrow(s / d)), [q])


def cumsum(x: Element) -> Q:
    shape = x.shape(0) or (1,)
    a = x.axis(len(shape))
    inner = math.prod(shape[a + 1 :])
    j = x.e // inner % shape[a]
    base = x.e - j * inner

    def values(read: Any, first: int, last: int) -> Any:
        return None, (yield from read(0, [base + i * inner for i in range(first, last)]))

    return added("y", j + 1, values, F32(-0.0))


def place(x: Element) -> Q:
    """A count of the elements before this one (7.4.3)."""
    shape = x.out[1] or (1,)
    a = x.axis(len(shape))
    n, inner = shape[a], math.prod(shape[a + 1 :])
    base = x.e // (n * inner) * (n * inner) + x.e % inner
    k = x.e // inner % n

    def smaller(v: Any, w: Any) -> bool:
        return bool(v < w) or bool(w != w and v == v)

    def f(read: Any, numbers: range) -> Any:
        own = (yield from read(0, [x.e]))[0]
        others = yield from read(0, [base + i * inner for i in numbers])
        found = []
        for i, v in zip(numbers, others, strict=True):
            pair = (own, v) if x.attrs["descending"] else (v, own)
            found.append(int(smaller(*pair) or (not smaller(*pair[::-1]) and i < k)))
        return found

    return Q("tree", "i64", "place", f, count=n)


def occurrences(x: Element) -> Q:
    """A count of the tokens of a stretch that are the element's class (7.4.4)."""
    row, own = divmod(x.e, x.out[1][1])

    def f(read: Any, numbers: range) -> Any:
        first = (yield from read(1, [row]))[0]
        last = (yield from read(2, [row]))[0]
        tokens = yield from read(0, list(numbers))
        pairs = zip(numbers, tokens, strict=True)
        return [int(first <= i <= last and token == own) for i, token in pairs]

    return Q("tree", "i64", "count", f, count=math.prod(x.shape(0)))


REDUCE: dict[str, Any] = {
    "aten.sum": total,
    "aten.sum.dim_IntList": total,
    "aten.mean": mean,
    "aten.mean.dim": mean,
    "aten.amax": extreme("max"),
    "aten.max": extreme("max"),
    "aten.amin": extreme("min"),
    "aten.min": extreme("min"),
    "aten.argmax": extreme("argmax"),
    "aten.var_mean.correction": var_mean,
    "tallystick.sum_squares": lambda x: terms(x, "SUM(x*x)", lambda v: v * v),
    "aten.cumsum": cumsum,
    "tallystick.rank": place,
    "tallystick.occurrences": occurrences,
}
