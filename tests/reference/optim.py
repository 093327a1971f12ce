"""Optimizer steps (NUMERICS 11)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.floats import F32, F64, fma, minimum, rn32
from reference.sums import total

Inputs = list[Any]
Attrs = dict[str, Any]


def _optional(inputs: Inputs, i: int) -> Any:
    return inputs[i] if i < len(inputs) else None


def _beta_power(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    return [np.asarray(F64(inputs[0][()]) * F64(attrs["beta"]), F64)]


def _adam(attrs: Attrs, inputs: Inputs, decoupled: bool) -> list[np.ndarray]:
    p, g, m, v = inputs[:4]
    lr, b1p, b2p = (F64(s[()]) for s in inputs[4:7])
    c = _optional(inputs, 7)
    one, decay64 = F64(1.0), F64(attrs["weight_decay"])
    step_size = F32(lr / (one - b1p))
    rbc2 = F32(np.sqrt(one - b2p))
    decay = F32(one - lr * decay64)
    a1 = F32(one - F64(attrs["beta1"]))
    b2, a2 = rn32(attrs["beta2"]), F32(one - F64(attrs["beta2"]))
    if c is not None:
        g = g * c
    if not decoupled and attrs["weight_decay"] != 0:
        g = fma(rn32(attrs["weight_decay"]), p, g)
    m2 = fma(a1, g - m, m)
    v2 = fma(b2, v, (a2 * g) * g)
    q = np.sqrt(v2) / rbc2 + rn32(attrs["eps"])
    p2 = fma(-step_size, m2 / q, p * decay if decoupled else p)
    return [p2, m2, v2]


def _sgd(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    p, g, buf, lr = inputs[:4]
    c, momentum = _optional(inputs, 4), rn32(attrs["momentum"])
    minus_lr = -F32(F64(lr[()]))
    if c is not None:
        g = g * c
    if attrs["weight_decay"] != 0:
        g = fma(rn32(attrs["weight_decay"]), p, g)
    if attrs["momentum"] == 0:
        return [fma(minus_lr, g, p)]
    undamped = F32(F64(1.0) - F64(attrs["dampening"]))
    buf2 = fma(momentum, buf, undamped * g)
    u = fma(momentum, buf2, g) if attrs["nesterov"] else buf2
    return [fma(minus_lr, u, p), buf2]


def _clip_coef(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    norm = np.sqrt(total(np.array([s[()] for s in inputs], F32)))
    r = rn32(attrs["max_norm"]) / (norm + rn32(1e-6))
    return [minimum(r, F32(1.0)), np.asarray(norm, F32)]


OPTIM = {
    "tallystick.beta_power": _beta_power,
    "tallystick.adamw_step": lambda a, x: _adam(a, x, True),
    "tallystick.adam_step": lambda a, x: _adam(a, x, False),
    "tallystick.sgd_step": _sgd,
    "tallystick.clip_coef": _clip_coef,
}
