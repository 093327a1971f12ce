"""Published operators of one element each (OPENING 10.9)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from reference.floats import rn32
from reference.judge.lift import lift
from reference.judge.logs import Bounded
from reference.judge.quantities import Element, Q, RefusedError, bcast
from reference.judge.real import F64, P, function, of
from reference.judge.trees_exact import bits_of
from reference.judge.trees_point import noise_word
from reference.rand import MASK, philox

h = float.fromhex
C1, C2, C3 = h("0x1.6a09e667f3bcdp-1"), h("0x1.9884533d43651p-2"), h("0x1.9884533d43651p-1")
C4, C5 = h("0x1.6e4e26d4801f7p-5"), h("0x1.12ba9d1f60179p-3")
PLAIN = "exp expm1 log log1p tanh erf sigmoid sin cos rsqrt sqrt".split()


def top(a: Any, b: Any) -> Any:
    """max of NUMERICS 1.11."""
    if np.isnan(a) or np.isnan(b):
        return F64(math.nan)
    if a == b:
        return b if np.signbit(a) else a
    return max(a, b)


def gelu(op: str, attrs: Any, v: list[P]) -> P:
    x = v[-1]
    u = (x + ((x * x) * x) * C4) * C3
    plain = attrs["approximate"] == "none"
    if op == "aten.gelu":
        inner = function("erf", x * C1) if plain else function("tanh", u)
        return (x * 0.5) * (of(1) + inner)
    if plain:
        left = x * (function("exp", (x * x) * (-0.5)) * C2)
        return v[0] * (left + (of(1) + function("erf", x * C1)) * 0.5)
    t = function("tanh", u)
    w = ((x * x) * C5 + 1) * C3
    return v[0] * ((of(1) + t) * 0.5 + ((x * 0.5) * (of(1) - t * t)) * w)


def power(a: P, y: float) -> P:
    """10.9.2."""
    whole = math.isinf(y) or (y == y and y == math.floor(y))
    odd = whole and not math.isinf(y) and math.fmod(y, 2.0) != 0
    if not np.isfinite(a.x):
        return P(math.nan)
    if a.x == 1 or y == 0:
        return P(1)
    if a.x == 0:
        z = 0.0 if y > 0 else math.inf if y < 0 else y
        return P(math.copysign(z, a.x) if odd else z)
    if a.x < 0 and not whole:
        return P(math.nan)
    value = function("exp", function("log", P(abs(a.x))) * y)
    return -value if a.x < 0 and odd else value


def adam(x: Element, v: list[Any]) -> P:
    p, g, m, s, lr, b1p, b2p = v[:7]
    a = x.attrs
    if len(v) > 7 and v[7] is not None:
        g = g * v[7]
    if x.op == "tallystick.adam_step" and a["weight_decay"] != 0:
        g = g + p * a["weight_decay"]
    m2 = m + (g - m) * (1.0 - a["beta1"])
    s2 = s * a["beta2"] + (g * g) * (1.0 - a["beta2"])
    if x.output:
        return (m2, s2)[x.output - 1]
    step = lr / (of(1) - b1p)
    below = function("sqrt", s2) / function("sqrt", of(1) - b2p) + a["eps"]
    kept = p * (of(1) - lr * a["weight_decay"]) if x.op == "tallystick.adamw_step" else p
    return kept - step * (m2 / below)


def sgd(x: Element, v: list[Any]) -> P:
    p, g, buf, lr = v[:4]
    a = x.attrs
    if len(v) > 4 and v[4] is not None:
        g = g * v[4]
    if a["weight_decay"] != 0:
        g = g + p * a["weight_decay"]
    u = g
    if buf is not None:
        buf = buf * a["momentum"] + g * (1.0 - a["dampening"])
        if x.output:
            return buf
        u = g + buf * a["momentum"] if a["nesterov"] else buf
    return p - lr * u


def value(x: Element, v: list[Any]) -> P:
    """The operator's row of 10.9."""
    name = x.op.split(".")[1]
    rounded = {k: F64(rn32(n)) for k, n in x.attrs.items() if isinstance(n, float)}
    a = v[0]
    if name in ("add", "sub", "mul", "div"):
        b = v[1] if x.op.endswith("Tensor") else of(rounded["other"])
        if name in ("mul", "div"):
            return a * b if name == "mul" else a / b
        b = b if x.attrs["alpha"] == 1 else b * rounded["alpha"]
        return a + b if name == "add" else a - b
    if name in PLAIN:
        return function(name, a)
    if name == "pow":
        return power(a, float(rounded["exponent"]))
    if name in ("gelu", "gelu_backward"):
        return gelu(x.op, x.attrs, v)
    if name in ("adamw_step", "adam_step"):
        return adam(x, v)
    if name == "clamp":
        t = a.x
        t = top(t, rounded["min"]) if "min" in rounded else t
        return P(-top(-t, -rounded["max"]) if "max" in rounded else t)
    return SIMPLE[name](rounded, *v)


def silu_backward(_r: Any, g: P, x: P) -> P:
    s = function("sigmoid", x)
    return g * (s * (x * (of(1) - s) + 1))


SIMPLE: dict[str, Any] = {
    "exp2": lambda _r, a: function("exp", a * h("0x1.62e42fefa39efp-1")),
    "log2": lambda _r, a: function("log", a) / h("0x1.62e42fefa39efp-1"),
    "reciprocal": lambda _r, a: of(1) / a,
    "square": lambda _r, a: a * a,
    "neg": lambda _r, a: -a,
    "abs": lambda _r, a: P(abs(a.x), a.e),
    "_to_copy": lambda _r, a: a,
    "maximum": lambda _r, a, b: P(top(a.x, b.x)),
    "minimum": lambda _r, a, b: P(-top(-a.x, -b.x)),
    "relu": lambda _r, a: P(top(a.x, F64(0))),
    "threshold_backward": lambda r, g, a: P(0) if a.x <= r["threshold"] else g,
    "leaky_relu": lambda r, a: a if a.x > 0 else a * r["negative_slope"],
    "silu": lambda _r, a: a * function("sigmoid", a),
    "silu_backward": silu_backward,
    "tanh_backward": lambda _r, g, y: g * (of(1) - y * y),
    "sigmoid_backward": lambda _r, g, y: g * (y * (of(1) - y)),
    "mask_scale": lambda r, a, m: a * r["scale"] if m.x == 1 else P(0),
}
NAMES = {f"aten.{n}" for n in (*PLAIN, *SIMPLE, "gelu", "gelu_backward", "clamp")}
NAMES |= {f"aten.{n}.{k}" for n in ("add", "sub", "mul", "div") for k in ("Tensor", "Scalar")}
NAMES |= {"aten.pow.Tensor_Scalar"}
NAMES |= {f"tallystick.{n}" for n in ("mask_scale", "adamw_step", "adam_step", "sgd_step")}


def single(x: Element, contract: str) -> Q:
    """R(x) of an operator of 10.9."""

    def f(read: Any) -> Any:
        v: list[Any] = []
        for k, kind in enumerate(x.operands):
            if kind is None:
                v.append(None)
                continue
            found = yield from read(k, [bcast(x.e, x.out[1], kind[1])])
            v.append(P(found[0]))
        made = sgd(x, v) if x.op == "tallystick.sgd_step" else value(x, v)
        return made.x, made.e

    def reach(_read: Any, agreed: Any) -> Any:
        return limits(agreed, contract), {}
        yield

    return Q("logged", "f32", "R(x)", reach, [Q("local", "real", "x", f)])


def limits(agreed: Any, contract: str) -> Bounded | None:
    """The reach of an agreed pair (9.4)."""
    if not (np.isfinite(agreed[0]) and np.isfinite(agreed[1])):
        return None
    return Bounded(Fraction(float(agreed[0])), float(agreed[1]), bits_of(contract))


def real_value(tree: Q, contract: str) -> Q:
    """R(x) of an operator's tree, lifted (9.1). An extremum is lifted to itself (9.2)."""
    q = lift(tree)

    def reach(_read: Any, agreed: Any) -> Any:
        pair = agreed if q.dtype == "real" else (F64(agreed), F64(0))
        return limits(pair, contract), {}
        yield

    return Q("logged", "f32", "R(x)", reach, [q])


def noise(x: Element, contract: str) -> Q:
    """gumbel of 10.9."""

    def f(read: Any) -> Any:
        word = yield from noise_word(x, read)
        v = P(min(2 * word + 1, 2**33 - 2**9) * 2.0**-33)
        made = -function("log", -function("log1p", -v))
        return made.x, made.e

    return drawn(f, contract)


def random(x: Element, contract: str) -> Q:
    """uniform and normal of 10.9; the words are those of OPENING 7.10."""

    def f(read: Any) -> Any:
        rng = yield from read(0, [0, 1])
        seed, step = int(rng[0]), int(rng[1])
        if seed < 0 or not 0 <= step < 2**32:
            raise RefusedError
        r = {k: F64(rn32(n)) for k, n in x.attrs.items() if isinstance(n, float)}
        each = 4 if x.op == "tallystick.uniform" else 2
        block = x.e // each
        counter = (block & MASK, block >> 32, x.attrs["draw"], step)
        w = philox(counter, (seed & MASK, seed >> 32))
        if each == 4:
            u = P((w[x.e % 4] >> 8) * 2.0**-24)
            made = of(r["low"]) + (of(r["high"]) - r["low"]) * u
            return made.x, made.e
        first, second = w[2 * (x.e % 2)], w[2 * (x.e % 2) + 1]
        u1, u2 = P(((first >> 8) + 1) * 2.0**-24), P((second >> 8) * 2.0**-24)
        z = function("sqrt", function("log", u1) * (-2.0))
        z = z * function("cos", u2 * h("0x1.921fb54442d18p+2"))
        made = z * r["std"] + r["mean"]
        return made.x, made.e

    return drawn(f, contract)


def drawn(f: Any, contract: str) -> Q:
    """R(x) of the pair that `f` makes of a word."""

    def reach(_read: Any, agreed: Any) -> Any:
        return limits(agreed, contract), {}
        yield

    return Q("logged", "f32", "R(x)", reach, [Q("local", "real", "x", f)])
