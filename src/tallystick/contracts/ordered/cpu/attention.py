"""Kernels of attention over whole tensors (NUMERICS 18)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import Arrays, Outputs
from tallystick.devices.kernel import operand, optional
from tallystick.numerics.operators.common import flag, integer, number, rn32
from tallystick.numerics.types import Attrs


def _seen(attrs: Attrs, i: int, keys: int) -> slice:
    place, window = integer(attrs, "first") + i, integer(attrs, "window")
    last = min(place, keys - 1) if flag(attrs, "causal") else keys - 1
    return slice(max(0, place - window + 1) if window else 0, last + 1)


def _function(name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    _core.elementary(name, np.ascontiguousarray(x), out)
    return out


def _canonical(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), rn32(float("nan")), x)


@kernel("tallystick.attention_scores")
@np.errstate(all="ignore")
def _scores(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    q, k, slopes, out = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2), outputs[0]
    out.fill(0)
    keys, shared = k.shape[2], max(1, q.shape[1] // k.shape[1])
    products = np.empty(out.shape[2:], np.float32)
    scale, cap = rn32(number(attrs, "scale")), rn32(number(attrs, "softcap"))
    for b, h in np.ndindex(*q.shape[:2]):
        _core.mm(q[b, h], k[b, h // shared].T, products)
        s = products * scale
        if number(attrs, "softcap") != 0:
            s = _function("tanh", s / cap) * cap
        if slopes is not None:
            s = s + slopes[h] * np.arange(keys).astype(np.float32)
        for i, row in enumerate(_canonical(s)):
            seen = _seen(attrs, i, keys)
            out[b, h, i, seen] = row[seen]


@kernel("tallystick.attention_weights")
@np.errstate(all="ignore")
def _weights(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    s, sinks, out = operand(inputs, 0), optional(inputs, 1), outputs[0]
    out.fill(0)
    for b, h, i in np.ndindex(*s.shape[:3]):
        seen = _seen(attrs, i, s.shape[3])
        row, m, total = s[b, h, i, seen], np.empty((), np.float32), np.empty((), np.float32)
        before = np.zeros(0, np.float32) if sinks is None else sinks[h : h + 1]
        own = np.ascontiguousarray(np.append(row, before))
        _core.reduce_extreme("max", own, 1, own.size, 1, m)
        e = _function("exp", row - m)
        terms = np.concatenate([_function("exp", before - m), np.zeros(seen.start, np.float32), e])
        _core.reduce_sum(terms, 1, terms.size, 1, total, False, False)
        out[b, h, i, seen] = _canonical(e / total)


@kernel("tallystick.attention_values")
def _values(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    p, v, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    shared = max(1, p.shape[1] // v.shape[1])
    for b, h, i in np.ndindex(*p.shape[:3]):
        seen = _seen(attrs, i, p.shape[3])
        weights = np.zeros((1, seen.stop), np.float32)
        values = np.zeros((seen.stop, v.shape[3]), np.float32)
        weights[0, seen], values[seen] = p[b, h, i, seen], v[b, h // shared, seen]
        _core.mm(weights, values, out[b, h, i][None])
