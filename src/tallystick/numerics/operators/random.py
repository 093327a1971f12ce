"""Random tensors from Philox4x32-10 (NUMERICS 8)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOAT,
    INTS,
    Result,
    Types,
    integer,
    integers,
    number,
    operands,
)
from tallystick.numerics.registry import AttrSpec, operator
from tallystick.numerics.types import Attrs, TensorType

_DRAW = {"draw": AttrSpec("int", 0), "shape": INTS}

WORD = 1 << 32


def _drawn(op: str, attrs: Attrs, inputs: Types, dtype: str) -> Result:
    (rng,) = operands(op, inputs, 1)
    if rng != TensorType("i64", (2,)):
        raise UsageError(f"{op}: takes the key i64[2], got {rng}.")
    if not 0 <= integer(attrs, "draw") < WORD:
        raise UsageError(f"{op}: the draw id must be in [0, 2^32).")
    shape = integers(attrs, "shape")
    if any(n < 0 for n in shape):
        raise UsageError(f"{op}: shape {shape} has a negative size.")
    return (TensorType(dtype, shape),)


@operator(
    "tallystick.dropout_mask",
    clause="8.4",
    operands=("rng",),
    attrs={**_DRAW, "p": FLOAT},
    op_class="random",
    is_random=True,
)
def _dropout(op: str, attrs: Attrs, inputs: Types) -> Result:
    if not 0.0 <= number(attrs, "p") < 1.0:
        raise UsageError(f"{op}: p must be in [0, 1), got {attrs['p']}.")
    return _drawn(op, attrs, inputs, "bool")


@operator(
    "tallystick.uniform",
    clause="8.6",
    operands=("rng",),
    attrs={**_DRAW, "low": AttrSpec("float", 0.0), "high": AttrSpec("float", 1.0)},
    op_class="random",
    is_random=True,
)
@operator(
    "tallystick.normal",
    clause="8.7",
    operands=("rng",),
    attrs={**_DRAW, "mean": AttrSpec("float", 0.0), "std": AttrSpec("float", 1.0)},
    op_class="random",
    is_random=True,
)
def _float(op: str, attrs: Attrs, inputs: Types) -> Result:
    return _drawn(op, attrs, inputs, "f32")
