"""Forms in the real numbers (NUMERICS 14.9.1, 14.11): OPENING 9.3's lifting of an operator's form.

It is the clauses of NUMERICS 5, 6 and 10 without any rounding. Constants are the real numbers that
they stand for, and an fma is a product and a sum. Attributes are first rounded by RN32. Some
operators have expressions of their own in OPENING 10.9, attached by `real_graph`: the attributes of
NUMERICS 11 stay binary64, and a power is one formula for every exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tallystick.kernels.loops import names_of
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.operators.common import number, rn32
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import DTYPE_NAMES, Attrs
from tallystick.numerics.values.graph import Expr, interpreted
from tallystick.opening import approx as r
from tallystick.opening.approx import Approx, pick, real
from tallystick.opening.real_functions import LN2

Operands = list[Any]  # Approx; bool or integer arrays; None where absent
Graph = Callable[[Attrs, Operands], Any]

real_graph: Attachments[Graph] = Attachments("real graph", "tallystick.opening.real_pointwise")


def _larger(a: Any, b: Any) -> Any:
    """max(a, b) of NUMERICS 1.11.

    numpy's own maximum of two zeros is the second operand on one processor and the positive one on
    another, and both parties state its bits.
    """
    a, b = real(a), real(b)
    zeros = (a.value == 0) & (b.value == 0)
    value = np.where(zeros, a.value + b.value, np.maximum(a.value, b.value))
    return Approx(value, np.maximum(a.error, b.error))


def _smaller(a: Any, b: Any) -> Any:
    """min(a, b) of NUMERICS 1.11."""
    return -_larger(-real(a), -real(b))


_PRIMITIVES: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "fma": lambda a, b, c: a * b + c, "neg": lambda x: -x,
    "abs": lambda x: Approx(np.abs(x.value), x.error), "max": _larger, "min": _smaller,
    "le": lambda a, b: a.exactly() <= real(b).exactly(),
    "gt": lambda a, b: a.exactly() > real(b).exactly(),
    "select": pick, "convert": real, "sqrt": r.sqrt, "rsqrt": r.rsqrt,
    "exp": r.exp, "exp2": lambda x: r.exp(x * LN2), "expm1": r.expm1,
    "log": r.log, "log2": lambda x: r.log(x) / LN2, "log1p": r.log1p, "tanh": r.tanh, "erf": r.erf,
    "sigmoid": r.sigmoid, "sin": r.sine, "cos": r.cosine,
}  # fmt: skip


def real_primitive(kind: str, parts: tuple[Any, ...]) -> Any:
    """A primitive in the real numbers."""
    return _PRIMITIVES[kind](*parts)


def lifted_form(
    spec: OpSpec, attrs: Attrs, operands: Mapping[str, Any], sizes: Mapping[str, int]
) -> list[Any]:
    """The outputs of an operator's f32 form over real numbers. `operands` by name are Approx, or
    bool or integer arrays."""
    dtypes = [_dtype(operands[name]) if name in operands else None for name in names_of(spec)]
    form = spec.form(attrs, dtypes)
    assert form is not None  # the declaration refused the call

    def meaning(value: Expr, parts: tuple[Any, ...]) -> Any:
        if value.kind == "operand":
            return operands[value.name]
        if value.kind == "attribute":
            return real(float(rn32(number(attrs, value.name))))
        if value.kind == "size":
            return real(float(sizes[value.name]))
        if value.kind == "constant":
            return real(value.number if value.real is None else value.real)
        return real_primitive(value.kind, parts)

    with np.errstate(all="ignore"):
        return interpreted(form.resolved(attrs, frozenset((*attrs, *operands))), meaning)


def _dtype(x: Any) -> str:
    return "f32" if isinstance(x, Approx) else DTYPE_NAMES[np.asarray(x).dtype]


# -- powers (10.6) -------------------------------------------------------------------------------
@real_graph("aten.pow.Tensor_Scalar")
def _pow(attrs: Attrs, xs: Operands) -> Any:
    at, y = xs[0].exactly(), float(rn32(number(attrs, "exponent")))
    with np.errstate(all="ignore"):
        size = r.exp(r.log(Approx(np.abs(at))) * y)
        odd = y == np.rint(y) and y % 2 == 1
        signed = pick((at < 0) & odd, -size, size)
        if y != np.rint(y):
            signed = pick(at < 0, np.nan, signed)
        at_zero = 0.0 if y > 0 else np.inf if y < 0 else y
        signed = pick(at == 0, np.copysign(at_zero, at) if odd else at_zero, signed)
        found = pick((at == 1) | (y == 0), 1.0, signed)
        return pick(np.isfinite(at), found, np.nan)


# -- optimizers (11) -----------------------------------------------------------------------------
@real_graph("tallystick.adamw_step", "tallystick.adam_step", named=True)
def _adam(op: str, attrs: Attrs, xs: Operands) -> Any:
    decoupled = op == "tallystick.adamw_step"
    p, g, m, v, lr, power1, power2 = xs[:7]
    if len(xs) > 7 and xs[7] is not None:
        g = g * xs[7]
    decay, beta1, beta2 = (number(attrs, k) for k in ("weight_decay", "beta1", "beta2"))
    if decay and not decoupled:
        g = g + p * decay
    m = m + (g - m) * (1 - beta1)
    v = v * beta2 + (g * g) * (1 - beta2)
    step = lr / (1.0 - power1)
    below = r.sqrt(v) / r.sqrt(1.0 - power2) + number(attrs, "eps")
    kept = p * (1.0 - lr * decay) if decoupled else p
    return [kept - step * (m / below), m, v]


@real_graph("tallystick.sgd_step")
def _sgd_step(attrs: Attrs, xs: Operands) -> Any:
    p, g, buffer, lr = xs[:4]
    if len(xs) > 4 and xs[4] is not None:
        g = g * xs[4]
    decay, momentum = number(attrs, "weight_decay"), number(attrs, "momentum")
    if decay:
        g = g + p * decay
    if buffer is None:
        return [p - lr * g]
    buffer = buffer * momentum + g * (1 - number(attrs, "dampening"))
    step = g + buffer * momentum if attrs["nesterov"] else buffer
    return [p - lr * step, buffer]
