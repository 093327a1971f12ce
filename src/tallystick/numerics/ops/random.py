"""Random tensors from Philox4x32-10, and dropout's scaling (NUMERICS 8)."""

from __future__ import annotations

import numpy as np

from tallystick import _core
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.numerics.ops._common import (
    FLOATS,
    Arrays,
    Outputs,
    Result,
    Types,
    as_bytes,
    check_dtype,
    check_shape,
    integer,
    integers,
    number,
    operand,
    operands,
    register_named,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs, TensorType

_WORD = 1 << 32
_DRAW = {"draw": AttrSpec("int"), "shape": AttrSpec("ints")}


def _key(op: str, inputs: Arrays) -> tuple[int, int]:
    """(seed, step) from the rng input (NUMERICS 8.3). Raises RefusedOperandsError out of range."""
    seed, step = (int(v) for v in operand(inputs, 0))
    if seed < 0 or not 0 <= step < _WORD:
        raise RefusedOperandsError(
            op, f"seed {seed} must not be negative, step {step} must be below 2^32."
        )
    return seed, step


def _infer(op: str, attrs: Attrs, inputs: Types, dtype: str) -> Result:
    (rng,) = operands(op, inputs, 1)
    if rng != TensorType("i64", (2,)):
        raise UsageError(f"{op}: takes the key i64[2], got {rng}.")
    if not 0 <= integer(attrs, "draw") < _WORD:
        raise UsageError(f"{op}: the draw id must be in [0, 2^32).")
    shape = integers(attrs, "shape")
    if any(n < 0 for n in shape):
        raise UsageError(f"{op}: shape {shape} has a negative size.")
    return (TensorType(dtype, shape),)


def _infer_dropout(op: str, attrs: Attrs, inputs: Types) -> Result:
    if not 0.0 <= number(attrs, "p") < 1.0:
        raise UsageError(f"{op}: p must be in [0, 1), got {attrs['p']}.")
    return _infer(op, attrs, inputs, "bool")


def _run_dropout(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    seed, step = _key(op, inputs)
    # Scaling by a power of two is exact, and round() is to even (NUMERICS 8.4).
    threshold = round(number(attrs, "p") * _WORD)
    _core.dropout_mask(seed, step, integer(attrs, "draw"), threshold, as_bytes(outputs[0]))


def _infer_float(op: str, attrs: Attrs, inputs: Types) -> Result:
    return _infer(op, attrs, inputs, "f32")


def _run_uniform(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    seed, step = _key(op, inputs)
    low, high = number(attrs, "low"), number(attrs, "high")
    _core.uniform(seed, step, integer(attrs, "draw"), low, high, outputs[0])


def _run_normal(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    seed, step = _key(op, inputs)
    mean, std = number(attrs, "mean"), number(attrs, "std")
    _core.normal(seed, step, integer(attrs, "draw"), mean, std, outputs[0])


_FLOAT = AttrSpec("float")
_BOUNDS = {"low": _FLOAT, "high": _FLOAT}
for _name, _clause, _attrs, _shape_rule, _kernel in (
    ("tallystick.dropout_mask", "8.4", {"p": _FLOAT}, _infer_dropout, _run_dropout),
    ("tallystick.uniform", "8.6", _BOUNDS, _infer_float, _run_uniform),
    ("tallystick.normal", "8.7", {"mean": _FLOAT, "std": _FLOAT}, _infer_float, _run_normal),
):
    register_named(
        _name,
        _clause,
        {**_DRAW, **_attrs},
        _shape_rule,
        _kernel,
        is_random=True,
        op_class="random",
    )


def _infer_mask_scale(_attrs: Attrs, inputs: Types) -> Result:
    op = "tallystick.mask_scale"
    x, mask = operands(op, inputs, 2)
    check_dtype(op, x, FLOATS)
    check_dtype(op, mask, ("bool",))
    check_shape(op, "the mask", mask, x.shape)
    return (x,)


def _run_mask_scale(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, mask = operand(inputs, 0), as_bytes(operand(inputs, 1))
    _core.ew2("mask_scale", x, mask, outputs[0], number(attrs, "scale"))


register(
    OpSpec(
        name="tallystick.mask_scale",
        clause="8.5",
        attrs={"scale": _FLOAT},
        infer=_infer_mask_scale,
        run=_run_mask_scale,
        all_inputs_strided=True,
        inplace=((0, 0),),
        op_class="elementwise",
    )
)


def philox_words(seed: int, step: int, draw: int, count: int) -> np.ndarray:
    """The 32-bit words of elements 0..count-1 of one draw (NUMERICS 8.1): uint32[count]."""
    out: np.ndarray = np.empty(count, dtype=np.uint32)
    _core.philox_words(seed, step, draw, 0, out)
    return out
