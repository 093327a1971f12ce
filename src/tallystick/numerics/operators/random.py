"""Random tensors from Philox4x32-10, and dropout's scaling (NUMERICS 8)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOAT,
    FLOATS,
    INTS,
    Result,
    Types,
    check_dtype,
    check_shape,
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


@operator(
    "tallystick.mask_scale",
    clause="8.5",
    operands=("x", "mask"),
    attrs={"scale": FLOAT},
    op_class="elementwise",
)
def _mask_scale(op: str, _attrs: Attrs, inputs: Types) -> Result:
    x, mask = operands(op, inputs, 2)
    check_dtype(op, x, FLOATS)
    check_dtype(op, mask, ("bool",))
    check_shape(op, "the mask", mask, x.shape)
    return (x,)
