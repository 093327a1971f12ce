"""Attention (OPENING 7.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference.floats import maximum, rn32, rn32_int
from reference.judge.either import call
from reference.judge.quantities import ZERO, Element, Q, at
from reference.judge.trees_dot import Dot, chain
from reference.judge.trees_move import one


@dataclass
class Place:
    """7.11.1, and the keys that the element's query sees (NUMERICS 18.2)."""

    row: int
    j: int
    h: int
    g: int
    keys: int
    lo: int
    hi: int

    def sees(self, key: int) -> bool:
        return self.lo <= key <= self.hi


def place_of(x: Element, keys: int, groups: int) -> Place:
    batch, h, t, j = at(x.e, x.out[1])
    heads, width = x.out[1][1], x.out[1][3]
    p = x.attrs["first"] + t
    hi = min(p, keys - 1) if x.attrs["causal"] else keys - 1
    lo = max(0, p - x.attrs["window"] + 1) if x.attrs["window"] else 0
    g = (batch * heads + h) // (heads // groups)
    return Place(x.e // width, j, h, g, keys, lo, hi)


def scores(x: Element) -> Q:
    keys, depth = x.shape(1)[2:]
    at_ = place_of(x, keys, x.shape(1)[1])
    key = at_.g * keys + at_.j
    length = depth if at_.sees(at_.j) else 0
    left, right = (0, lambda i: at_.row * depth + i), (1, lambda i: key * depth + i)
    cap = x.attrs["softcap"]

    def out(read: Any, dot: Any) -> Any:
        if not at_.sees(at_.j):
            return ZERO
        s = dot * rn32(x.attrs["scale"])
        if cap != 0:
            s = call("tanh", s / rn32(cap)) * rn32(cap)
        if x.has(2):
            s = s + (yield from one(read, 2, at_.h)) * rn32_int(at_.j)
        return s

    return Q("local", "f32", "out", out, [chain(Dot("dot", length, left, right))])


def weights(x: Element) -> Q:
    keys = x.shape(0)[3]
    at_ = place_of(x, keys, 1)
    sinks = int(x.has(1))
    first = at_.row * keys
    top = Q("extremum", "f32", "max", lambda i: first + at_.lo + i, count=at_.hi - at_.lo + 1)

    def with_sink(read: Any, largest: Any) -> Any:
        return maximum(largest, (yield from one(read, 1, at_.h)))[()]

    m = Q("local", "f32", "m", with_sink, [top]) if sinks else top

    def terms(read: Any, numbers: range, most: Any) -> Any:
        sunk = (yield from read(1, [at_.h])) if numbers.start < sinks else []
        there = [i - sinks for i in numbers if i >= sinks]
        seen = yield from read(0, [first + k for k in there if k >= at_.lo])
        found = iter([*sunk, *seen])
        missing = [k < at_.lo for k in there]
        return [ZERO if none else call("exp", next(found) - most)
                for none in [*(False for _ in sunk), *missing]]  # fmt: skip

    s = Q("tree", "f32", "s", terms, [m], count=at_.hi + 1 + sinks)

    def y(read: Any, most: Any, total: Any) -> Any:
        if not at_.sees(at_.j):
            return ZERO
        return call("exp", (yield from one(read, 0, x.e)) - most) / total

    return Q("local", "f32", "y", y, [m, s])


def values(x: Element) -> Q:
    keys, width = x.shape(1)[2:]
    at_ = place_of(x, keys, x.shape(1)[1])
    left = lambda i: at_.row * keys + i if i >= at_.lo else None  # noqa: E731
    right = lambda i: (at_.g * keys + i) * width + at_.j if i >= at_.lo else None  # noqa: E731
    return chain(Dot("dot", at_.hi + 1, (0, left), (1, right)))


ATTENTION: dict[str, Any] = {
    "tallystick.attention_scores": scores,
    "tallystick.attention_weights": weights,
    "tallystick.attention_values": values,
}
