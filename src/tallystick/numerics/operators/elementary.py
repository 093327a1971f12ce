"""Correctly rounded elementary functions and powers (NUMERICS 5, 10.6)."""

from __future__ import annotations

from tallystick.numerics.operators.common import FLOAT, FLOATS, same_type
from tallystick.numerics.registry import operator

# 5.1's list.
FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt",
)  # fmt: skip

operator(
    *(f"aten.{name}" for name in FUNCTIONS),
    clause="5",
    operands=("x",),
    op_class="elementwise",
)(same_type(1, FLOATS))

operator(
    "aten.pow.Tensor_Scalar",
    clause="10.6",
    operands=("x",),
    attrs={"exponent": FLOAT},
    op_class="elementwise",
)(same_type(1, FLOATS))
