"""Likely misreadings of NUMERICS 18, for test_misreadings: its reference with one part another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from reference import attention
from reference.dot import dot
from reference.exact import elementary
from reference.floats import F32, fma, maximum, rn32
from reference.ops import REFERENCE
from reference.sums import total

Attrs = dict[str, Any]
Reading = Callable[[Attrs, list[Any]], list[Any]]
SCORES, WEIGHTS, VALUES = (f"tallystick.attention_{n}" for n in ("scores", "weights", "values"))
_SEEN = attention.seen


def patched(op: str, name: str, other: Any) -> tuple[str, Reading]:
    """The operator with a function of the reference replaced."""

    def run(attrs: Attrs, inputs: list[Any]) -> list[Any]:
        own = getattr(attention, name)
        setattr(attention, name, other)
        try:
            return REFERENCE[op](attrs, inputs)
        except (IndexError, ValueError):  # a query that sees no key by this reading
            return []
        finally:
            setattr(attention, name, own)

    return op, run


def other_seen(op: str, change: Callable[[Attrs], Attrs]) -> tuple[str, Reading]:
    """18.2 with other attributes."""
    return patched(op, "seen", lambda attrs, i, keys: _SEEN({**attrs, **change(attrs)}, i, keys))


def heads_in_turn(op: str) -> tuple[str, Reading]:
    """18.2 with group h mod G."""

    def run(attrs: Attrs, inputs: list[Any]) -> list[Any]:
        x, shared = inputs[:2]
        heads, groups = x.shape[1], shared.shape[1]
        if not heads:
            return REFERENCE[op](attrs, inputs)
        picked = np.ascontiguousarray(shared[:, np.arange(heads) % groups])
        return REFERENCE[op](attrs, [x, picked, *inputs[2:]])

    return op, run


def scores(after: Callable[[Attrs, Any, Any, Any], Any]) -> tuple[str, Reading]:
    """18.3 with another formula of the DOT, the slope and the key's number."""

    def run(attrs: Attrs, inputs: list[Any]) -> list[Any]:
        q, k = inputs[:2]
        slopes = inputs[2] if len(inputs) > 2 else None
        keys, shared = k.shape[2], q.shape[1] // k.shape[1]
        out = np.zeros((*q.shape[:3], keys), F32)
        with np.errstate(all="ignore"):
            for b, h, i in np.ndindex(*q.shape[:3]):
                there = _SEEN(attrs, i, keys)
                slope = None if slopes is None else slopes[h]
                key = np.array(there, F32)
                product = dot(q[b, h, i], k[b, h // shared, there])
                out[b, h, i, there] = after(attrs, product, slope, key)
        return [out]

    return SCORES, run


def capped(attrs: Attrs, s: Any) -> Any:
    if attrs["softcap"] == 0:
        return s
    cap = rn32(attrs["softcap"])
    return elementary("tanh", s / cap) * cap


def slope_first(attrs: Attrs, product: Any, slope: Any, key: Any) -> Any:
    s = product * rn32(attrs["scale"])
    return capped(attrs, s if slope is None else s + slope * key)


def slope_fused(attrs: Attrs, product: Any, slope: Any, key: Any) -> Any:
    s = capped(attrs, product * rn32(attrs["scale"]))
    return s if slope is None else fma(slope, key, s)


def scaled_twice(attrs: Attrs, product: Any, slope: Any, key: Any) -> Any:
    """The cap goes into the scale."""
    factor = rn32(attrs["scale"])
    if attrs["softcap"] != 0:
        cap = rn32(attrs["softcap"])
        s = elementary("tanh", product * (factor / cap)) * cap
    else:
        s = product * factor
    return s if slope is None else s + slope * key


def cap_rounded(attrs: Attrs, product: Any, slope: Any, key: Any) -> Any:
    own = {**attrs, "softcap": float(rn32(attrs["softcap"]))}
    s = capped(own, product * rn32(attrs["scale"]))
    return s if slope is None else s + slope * key


def sunk(before: bool, position: bool) -> tuple[str, Reading]:
    """18.4 with the sink after the keys, or the keys' terms from the first present one on."""

    def run(attrs: Attrs, inputs: list[Any]) -> list[Any]:
        s, sinks = inputs[0], inputs[1] if len(inputs) > 1 else None
        out = np.zeros(s.shape, F32)
        with np.errstate(all="ignore"):
            for b, h, i in np.ndindex(*s.shape[:3]):
                there = _SEEN(attrs, i, s.shape[3])
                row, m = s[b, h, i, there], maximum(s[b, h, i, there[0]], F32(-np.inf))
                for x in row if sinks is None else [*row, sinks[h]]:
                    m = maximum(m, x)
                e = elementary("exp", row - m)
                terms = [*(np.zeros(there[0], F32) if position else ()), *e]
                if sinks is not None:
                    own = elementary("exp", np.asarray(sinks[h] - m))
                    terms = [own, *terms] if before else [*terms, own]
                out[b, h, i, there] = e / total(np.array(terms, F32))
        return [out]

    return WEIGHTS, run


def from_the_first(attrs: Attrs, inputs: list[Any]) -> list[Any]:
    """18.5 with chunks that begin at lo."""
    p, v = inputs
    out = np.zeros((*p.shape[:3], v.shape[3]), F32)
    shared = p.shape[1] // v.shape[1]
    for b, h, i in np.ndindex(*p.shape[:3]):
        there = _SEEN(attrs, i, p.shape[3])
        out[b, h, i] = dot(p[b, h, i, there], v[b, h // shared, there].T)
    return [out]


def all_read(attrs: Attrs, inputs: list[Any]) -> list[Any]:
    """18.5 with absent keys multiplied by a weight +0."""
    p, v = inputs
    weights = np.zeros(p.shape, F32)
    for i in range(p.shape[2]):
        there = _SEEN(attrs, i, p.shape[3])
        weights[:, :, i, there] = p[:, :, i, there]
    everything = {"causal": False, "first": 0, "window": 0}
    return REFERENCE[VALUES](everything, [weights, v])


ATTENTION: dict[str, tuple[str, Reading]] = {
    "18.2 first is not added": other_seen(WEIGHTS, lambda a: {"first": 0}),
    "18.2 a query does not see itself": other_seen(VALUES, lambda a: {"first": a["first"] - 1}),
    "18.2 a window of one key more": other_seen(
        SCORES, lambda a: {"window": a["window"] and a["window"] + 1}
    ),
    "18.2 no window": other_seen(VALUES, lambda a: {"window": 0}),
    "18.2 heads take groups in turn": heads_in_turn(SCORES),
    "18.2 heads take groups of values in turn": heads_in_turn(VALUES),
    "18.3 the slope before the cap": scores(slope_first),
    "18.3 the slope is fused": scores(slope_fused),
    "18.3 the cap goes into the scale": scores(scaled_twice),
    "18.3 the cap is rounded, then compared": scores(cap_rounded),
    "18.4 the sink comes last": sunk(before=False, position=True),
    "18.4 terms from the first present key on": sunk(before=True, position=False),
    "18.5 chunks from the first present key on": (VALUES, from_the_first),
    "18.5 absent keys are multiplied": (VALUES, all_read),
}
