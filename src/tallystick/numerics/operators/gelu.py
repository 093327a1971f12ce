"""gelu and its gradient (NUMERICS 6.7 to 6.10)."""

from __future__ import annotations

import math

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import text
from tallystick.numerics.operators.pointwise import pointwise
from tallystick.numerics.registry import AttrSpec
from tallystick.numerics.types import Attrs
from tallystick.numerics.values.forms import forms
from tallystick.numerics.values.graph import Expr, binary32, case, fma, function, is_

_CUBIC = 0.044715  # its published decimal is the real number, here and times three
_C1 = binary32(0x3F3504F3, math.sqrt(0.5))
_C2 = binary32(0x3ECC422A, 1 / math.sqrt(2 * math.pi))
_C3 = binary32(0x3F4C422A, math.sqrt(2 / math.pi))
_C4 = binary32(0x3D372713, _CUBIC)
_C5 = binary32(0x3E095D4F, 3 * _CUBIC)
_TANH = is_("approximate", "tanh")


def _inner(x: Expr) -> Expr:
    return _C3 * fma((x * x) * x, _C4, x)


def _gelu(x: Expr) -> Expr:
    by_tanh = (x * 0.5) * (1.0 + function("tanh", _inner(x)))
    by_erf = (x * 0.5) * (1.0 + function("erf", x * _C1))
    return case(_TANH, by_tanh, by_erf)


def _gelu_backward(grad: Expr, x: Expr) -> Expr:
    c = 0.5 * (1.0 + function("erf", x * _C1))
    by_erf = grad * fma(x, function("exp", (x * x) * -0.5) * _C2, c)
    t = function("tanh", _inner(x))
    v = _C3 * fma(x * x, _C5, 1.0)
    by_tanh = grad * (0.5 * (1.0 + t) + ((0.5 * x) * fma(-t, t, 1.0)) * v)
    return case(_TANH, by_tanh, by_erf)


def _known(op: str, attrs: Attrs) -> None:
    approximate = text(attrs, "approximate")
    if approximate not in ("none", "tanh"):
        raise UsageError(f"{op}: approximate must be none or tanh, got {approximate!r}.")


for _name, _clause, _make in (
    ("gelu", "6.7, 6.9", _gelu),
    ("gelu_backward", "6.8, 6.10", _gelu_backward),
):
    pointwise(
        f"aten.{_name}",
        forms(_make, "f32"),
        clause=_clause,
        attrs={"approximate": AttrSpec("str", "none")},
        op_class="composite",
        one_shape=True,
        check=_known,
    )
