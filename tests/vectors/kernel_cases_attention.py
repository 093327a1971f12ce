"""The calls of the golden vectors: attention (NUMERICS 18)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_cases import Call
from reference.data import SPECIAL, Gen
from reference.floats import F32

SCORES, WEIGHTS, VALUES = (f"tallystick.attention_{n}" for n in ("scores", "weights", "values"))
ALL = {"causal": False, "first": 0, "window": 0}
CAUSAL = {"causal": True, "first": 0, "window": 0}
# Which keys there are, for 5 queries and 9 keys: places before, at and beyond the last key, a
# window of one key, one as long as the text, one that reaches beyond the last key.
SEEN: tuple[dict[str, Any], ...] = (
    ALL, {**ALL, "first": 3}, CAUSAL, {**CAUSAL, "first": 4}, {**CAUSAL, "first": 7},
    {**CAUSAL, "window": 1}, {**CAUSAL, "window": 3, "first": 2},
    {**CAUSAL, "window": 9, "first": 4}, {**CAUSAL, "window": 6, "first": 9},
    {**CAUSAL, "window": 2**31 - 1}, {**CAUSAL, "first": 2**31 - 1},
)  # fmt: skip


def scores(g: Gen) -> Iterator[Call]:
    plain = {**CAUSAL, "scale": 0.125, "softcap": 0.0}
    for seen in SEEN:
        q, k = g.floats(1, 2, 5, 4), g.floats(1, 1, 9, 4)
        yield SCORES, {**plain, **seen}, [q, k]
        slopes = g.floats(2)
        yield SCORES, {**plain, **seen, "softcap": 1.5}, [g.mixed(1, 2, 5, 4), k, slopes]
    # Lengths of a row about a chunk, and none; one head to a group, groups, batches.
    for width in (0, 1, 127, 128, 129, 257):
        yield SCORES, plain, [g.floats(1, 1, 3, width), g.floats(1, 1, 4, width)]
    for heads, groups in ((1, 1), (4, 4), (4, 2), (6, 3), (9, 3)):
        attrs = {**plain, "scale": 0.3, "softcap": 20.0, "first": 1}
        operands = [g.floats(2, heads, 3, 8), g.floats(2, groups, 4, 8), g.floats(heads)]
        yield SCORES, attrs, operands
        yield SCORES, {**plain, "scale": -1e-3}, operands[:2]
    for scale in (1.0, 0.0, -0.0, 1e-60, 1e300, float("inf")):
        yield SCORES, {**plain, "scale": scale}, [g.mixed(1, 1, 6, 3), g.mixed(1, 1, 6, 3)]
    # A softcap is compared as a binary64 number: this one is not 0, though RN32 of it is.
    for cap in (-0.0, 1e-60, -3.0, float("inf")):
        yield SCORES, {**plain, "softcap": cap}, [g.mixed(1, 1, 6, 3), g.mixed(1, 1, 6, 3)]
    for make in (g.mixed, g.tiny, g.wide, g.bits):
        yield SCORES, {**plain, "scale": 1.0}, [make(1, 2, 7, 19), make(1, 2, 7, 19), make(2)]
    # A product that rounds to -0, and what a slope adds to it.
    q, k = np.full((1, 1, 2, 1), F32(-1e-30)), np.full((1, 1, 2, 1), F32(1e-30))
    yield SCORES, {**ALL, "scale": 1.0, "softcap": 0.0}, [q, k]
    yield SCORES, {**ALL, "scale": 1.0, "softcap": 0.0}, [q, k, np.full(1, -0.0, F32)]
    # An absent key is not read.
    k = g.floats(1, 1, 8, 4)
    k[0, 0, :2], k[0, 0, 5:] = np.nan, np.inf
    attrs = {**plain, "first": 3, "window": 2}
    yield SCORES, attrs, [g.floats(1, 2, 2, 4), k]
    yield SCORES, attrs, [np.zeros((0, 2, 2, 4), F32), np.zeros((0, 1, 8, 4), F32)]
    yield SCORES, attrs, [np.zeros((1, 2, 0, 4), F32), k]
    yield SCORES, attrs, [np.zeros((1, 0, 2, 4), F32), k, np.zeros(0, F32)]


def weights(g: Gen) -> Iterator[Call]:
    for seen in SEEN:
        yield WEIGHTS, seen, [g.floats(1, 2, 5, 9, scale=4.0)]
        yield WEIGHTS, seen, [g.floats(1, 2, 5, 9, scale=4.0), g.floats(2, scale=4.0)]
    # Blocks of the sum: lengths about 256, with a sink before the keys and without one.
    for keys in (1, 31, 32, 33, 255, 256, 257, 513):
        for sinks in ([], [g.floats(1)]):
            last = {**CAUSAL, "first": keys - 1}
            yield WEIGHTS, last, [g.floats(1, 1, 1, keys, scale=3.0), *sinks]
            yield WEIGHTS, {**last, "window": 40}, [g.floats(1, 1, 1, keys, scale=3.0), *sinks]
    for make in (g.mixed, g.tiny, g.wide, g.bits):
        yield WEIGHTS, CAUSAL, [make(2, 3, 8, 8)]
        yield WEIGHTS, ALL, [make(1, 3, 8, 8), make(3)]
    # A sink above all keys, below them, infinite and NaN; rows of infinities and of zeros.
    for sink in (80.0, -80.0, np.inf, -np.inf, np.nan, -0.0, 0.0):
        yield WEIGHTS, CAUSAL, [g.floats(1, 1, 3, 3), np.full(1, sink, F32)]
        yield WEIGHTS, CAUSAL, [np.full((1, 1, 3, 3), -0.0, F32), np.full(1, sink, F32)]
    for value in (np.inf, -np.inf, np.nan, 0.0):
        yield WEIGHTS, CAUSAL, [np.full((1, 1, 3, 3), value, F32)]
    # Growing scores: the last key decides the maximum.
    yield WEIGHTS, CAUSAL, [(np.arange(300, dtype=F32) * F32(9)).reshape(1, 1, 1, 300)]
    growing = np.broadcast_to(np.arange(40, dtype=F32) * F32(4), (1, 1, 40, 40)).copy()
    yield WEIGHTS, CAUSAL, [growing]
    yield WEIGHTS, {**CAUSAL, "window": 5}, [-growing, np.full(1, -60, F32)]
    # An absent score is not read.
    s = g.floats(1, 2, 4, 12)
    s[..., :2], s[..., 8:] = np.nan, np.inf
    yield WEIGHTS, {**CAUSAL, "first": 4, "window": 3}, [s]
    yield WEIGHTS, {**CAUSAL, "first": 4, "window": 3}, [s, g.floats(2)]
    for shape in ((0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4)):
        yield WEIGHTS, CAUSAL, [np.zeros(shape, F32)]


def values(g: Gen) -> Iterator[Call]:
    for seen in SEEN:
        yield VALUES, seen, [g.span(0, 1, 1, 2, 5, 9), g.floats(1, 1, 9, 3)]
        yield VALUES, seen, [g.mixed(1, 2, 5, 9), g.mixed(1, 2, 9, 3)]
    # Chunks of 128 keys, and those that a window leaves out.
    for keys in (1, 127, 128, 129, 256, 257, 400):
        for window in (0, 1, 100, 130):
            attrs = {**CAUSAL, "first": keys - 1, "window": window}
            yield VALUES, attrs, [g.span(0, 1, 1, 1, 1, keys), g.floats(1, 1, keys, 5)]
    # Products that round to -0: the first chunk initialises, and one that is left out is +0.
    for first, window in ((0, 0), (127, 0), (128, 0), (300, 0), (300, 10), (300, 44), (300, 45)):
        p, v = np.full((1, 1, 1, 301), F32(-1e-30)), np.full((1, 1, 301, 2), F32(1e-30))
        yield VALUES, {**CAUSAL, "first": first, "window": window}, [p, v]
    for heads, groups in ((1, 1), (4, 4), (4, 2), (6, 3), (9, 3)):
        yield VALUES, CAUSAL, [g.span(0, 1, 2, heads, 6, 6), g.floats(2, groups, 6, 8)]
    for width in (0, 1, 15, 16, 17, 33, 64, 100):
        yield VALUES, CAUSAL, [g.span(0, 1, 1, 2, 4, 4), g.floats(1, 2, 4, width)]
    for make in (g.mixed, g.tiny, g.wide, g.bits):
        yield VALUES, CAUSAL, [make(1, 2, 9, 9), make(1, 1, 9, 18)]
    pairs = np.array(np.meshgrid(SPECIAL, SPECIAL), F32).reshape(2, -1)
    yield VALUES, CAUSAL, [pairs[0].reshape(1, -1, 1, 1), pairs[1].reshape(1, -1, 1, 1)]
    # An absent value is not read, and neither is its weight.
    p, v = g.span(0, 1, 1, 2, 3, 12), g.floats(1, 1, 12, 4)
    for x in (p.transpose(3, 0, 1, 2), v.transpose(2, 0, 1, 3)):
        x[:2], x[8:] = np.nan, -np.inf
    yield VALUES, {**CAUSAL, "first": 4, "window": 3}, [p, v]
    for shape in ((0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4)):
        yield VALUES, CAUSAL, [np.zeros(shape, F32), g.floats(shape[0], 1, 4, 5)]


def attention() -> Iterator[Call]:
    """NUMERICS 18: which keys a query sees, groups of heads, every branch and length."""
    g = Gen("attention")
    for calls in (scores, weights, values):
        yield from calls(g)
