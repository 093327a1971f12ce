"""Correctly rounded elementary functions and powers (NUMERICS 5, 10.6)."""

from __future__ import annotations

from functools import partial

from tallystick.numerics.operators.common import FLOAT
from tallystick.numerics.operators.pointwise import pointwise
from tallystick.numerics.values.forms import forms
from tallystick.numerics.values.graph import (
    Expr,
    attribute,
    case,
    function,
    is_,
    primitive,
)
from tallystick.numerics.values.primitives import FUNCTIONS as FUNCTIONS

for _name in FUNCTIONS:
    pointwise(f"aten.{_name}", forms(partial(function, _name), "f32"), clause="5")


def _pow(x: Expr) -> Expr:
    """Some exponents are plain arithmetic; 1 is x itself, but for a NaN."""
    found = primitive("pow", x, attribute("exponent", x))
    plain = {
        1.0: x,
        2.0: x * x,
        3.0: (x * x) * x,
        0.5: primitive("sqrt", x),
        -0.5: function("rsqrt", x),
        -1.0: 1.0 / x,
    }
    for exponent, value in plain.items():
        found = case(is_("exponent", exponent), value, found)
    return found


pointwise("aten.pow.Tensor_Scalar", forms(_pow, "f32"), clause="10.6", attrs={"exponent": FLOAT})
