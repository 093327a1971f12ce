"""Losses (OPENING 7.9)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reference.floats import F32, rn32_int
from reference.judge.either import by_count, call, fma
from reference.judge.quantities import Element, Q, RefusedError
from reference.judge.real import P
from reference.judge.trees_move import one
from reference.judge.trees_norm import exp, local, sums
from reference.judge.trees_point import done


def target(x: Element, read: Any, k: int, r: int, classes: int) -> Any:
    """The target of a row, None where it is ignored; another one is refused (7.9.1)."""
    t = int((yield from one(read, k, r)))
    if t == x.attrs["ignore_index"]:
        return None
    if not 0 <= t < classes:
        raise RefusedError
    return t


def count(x: Element, k: int) -> Q:
    def f(read: Any, numbers: range) -> Any:
        found = yield from read(k, list(numbers))
        return (found != x.attrs["ignore_index"]).astype(np.int64)

    return sums("count", x.shape(k)[0], f, dtype="i64")


def cross_entropy(x: Element) -> Q:
    rows, v = x.shape(0)

    def m_of(r: int) -> Q:
        return Q("extremum", "f32", "m", lambda i: r * v + i, count=v)

    def s_of(r: int) -> Q:
        def f(read: Any, numbers: range, m: Any) -> Any:
            return exp((yield from read(0, [r * v + i for i in numbers])) - m)

        return sums("s", v, f, m_of(r))

    def loss_of(r: int) -> Q:
        def f(read: Any, m: Any, s: Any) -> Any:
            t = yield from target(x, read, 1, r, v)
            if t is None:
                return F32(0)
            return call("log", s) - ((yield from one(read, 0, r * v + t)) - m)

        return Q("local", "f32", "l_r", f, [m_of(r), s_of(r)])

    if x.output:
        return (m_of, s_of)[x.output - 1](x.e)
    if x.attrs["reduction"] == "none":
        return loss_of(x.e)
    losses = Q("terms", "f32", "SUM(l)", loss_of, count=rows)
    if x.attrs["reduction"] == "sum":
        return losses
    return local("loss", lambda s, c: by_count(s, c), losses, count(x, 1))


def cross_entropy_backward(x: Element) -> Q:
    _, v = x.shape(1)
    r, reduction = x.e // v, x.attrs["reduction"]

    def f(read: Any, *counted: int) -> Any:
        t = yield from target(x, read, 2, r, v)
        if t is None:
            return F32(0)
        g = yield from one(read, 0, r if reduction == "none" else 0)
        a = yield from one(read, 1, x.e)
        m = yield from one(read, 3, r)
        s = yield from one(read, 4, r)
        c = by_count(g, counted[0]) if counted else g
        p = exp(a - m) / s
        return fma(p, c, -c) if t == x.e % v else p * c

    return Q("local", "f32", "out", f, [count(x, 2)] if reduction == "mean" else [])


def nll(x: Element) -> Q:
    rows, v = x.shape(0)
    if x.output:
        q = local("total_weight", rn32_int, count(x, 1))
        q.lifted = lambda _r, n: done(P(n))
        return q

    def terms(read: Any, numbers: Any) -> Any:
        found = yield from read(1, list(numbers))
        kept = [(i, int(t)) for i, t in zip(numbers, found, strict=True)]
        kept = [(i, t) for i, t in kept if t != x.attrs["ignore_index"]]
        if any(not 0 <= t < v for _, t in kept):
            raise RefusedError
        out = dict.fromkeys(numbers, F32(0))
        for (i, _), e in zip(kept, (yield from read(0, [i * v + t for i, t in kept])), strict=True):
            out[i] = -e
        return list(out.values())

    def alone(read: Any) -> Any:
        return (yield from terms(read, [x.e]))[0]

    if x.attrs["reduction"] == "none":
        return Q("local", "f32", "l_r", alone)
    losses = sums("SUM(l)", rows, terms)
    if x.attrs["reduction"] == "sum":
        return losses
    return local("loss", lambda s, c: by_count(s, c), losses, count(x, 1))


def nll_backward(x: Element) -> Q:
    _, v = x.shape(1)
    r, reduction = x.e // v, x.attrs["reduction"]

    def f(read: Any) -> Any:
        t = yield from target(x, read, 2, r, v)
        if t != x.e % v:
            return F32(0)
        g = yield from one(read, 0, r if reduction == "none" else 0)
        return -(g / (yield from one(read, 3, 0))) if reduction == "mean" else -g

    return Q("local", "f32", "out", f)


def mse(x: Element) -> Q:
    def terms(read: Any, numbers: Any) -> Any:
        d = (yield from read(0, list(numbers))) - (yield from read(1, list(numbers)))
        return d * d

    def alone(read: Any) -> Any:
        return (yield from terms(read, [x.e]))[0]

    n = math.prod(x.shape(0))
    if x.attrs["reduction"] == "none":
        return Q("local", "f32", "q", alone)
    q = sums("SUM(q)", n, terms)
    if x.attrs["reduction"] == "sum":
        return q
    return local("loss", lambda s: by_count(s, n), q)


LOSS: dict[str, Any] = {
    "tallystick.cross_entropy": cross_entropy,
    "tallystick.cross_entropy_backward": cross_entropy_backward,
    "aten.nll_loss_forward": nll,
    "aten.nll_loss_backward": nll_backward,
    "aten.mse_loss": mse,
}
