"""Attention: scores, weights, values (NUMERICS 18)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.dot import dot
from reference.exact import elementary
from reference.floats import F32, maximum, rn32, rn32_int
from reference.sums import total

Inputs = list[Any]
Attrs = dict[str, Any]


def seen(attrs: Attrs, i: int, keys: int) -> range:
    """The keys that query number i sees, lo to hi (18.2)."""
    place = attrs["first"] + i
    hi = min(place, keys - 1) if attrs["causal"] else keys - 1
    lo = max(0, place - attrs["window"] + 1) if attrs["window"] else 0
    return range(lo, hi + 1)


def _optional(inputs: Inputs, i: int) -> Any:
    return inputs[i] if i < len(inputs) else None


def _scores(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    q, k = inputs[:2]
    slopes = _optional(inputs, 2)
    batches, heads, queries, _ = q.shape
    keys, shared = k.shape[2], heads // k.shape[1]
    out = np.zeros((batches, heads, queries, keys), F32)
    cap = rn32(attrs["softcap"])
    for b, h, i in np.ndindex(batches, heads, queries):
        there = seen(attrs, i, keys)
        s = dot(q[b, h, i], k[b, h // shared, there]) * rn32(attrs["scale"])
        if attrs["softcap"] != 0:
            s = elementary("tanh", s / cap) * cap
        if slopes is not None:
            s = s + slopes[h] * np.array([rn32_int(j) for j in there], F32)
        out[b, h, i, there] = s
    return [out]


def _weights(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    s = inputs[0]
    sinks = _optional(inputs, 1)
    out = np.zeros(s.shape, F32)
    for b, h, i in np.ndindex(*s.shape[:3]):
        row, there = s[b, h, i], seen(attrs, i, s.shape[3])
        m = row[there[0]]
        for j in there:
            m = maximum(m, row[j])
        if sinks is not None:
            m = maximum(m, sinks[h])
        terms = np.zeros(there[-1] + 1, F32)
        terms[there] = elementary("exp", row[there] - m)
        before = [] if sinks is None else [elementary("exp", np.asarray(sinks[h] - m))]
        whole = total(np.array([*before, *terms], F32))
        out[b, h, i, there] = terms[there] / whole
    return [out]


def _values(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    p, v = inputs
    batches, heads, queries, keys = p.shape
    shared = heads // v.shape[1]
    out = np.zeros((batches, heads, queries, v.shape[3]), F32)
    for b, h, i in np.ndindex(batches, heads, queries):
        there = seen(attrs, i, keys)
        # A term below lo is +0 · +0.
        weights = np.zeros(there[-1] + 1, F32)
        values = np.zeros((there[-1] + 1, v.shape[3]), F32)
        weights[there[0] :] = p[b, h, i, there[0] : there[-1] + 1]
        values[there[0] :] = v[b, h // shared, there[0] : there[-1] + 1]
        out[b, h, i] = dot(weights, values.T)
    return [out]


ATTENTION = {
    "tallystick.attention_scores": _scores,
    "tallystick.attention_weights": _weights,
    "tallystick.attention_values": _values,
}
