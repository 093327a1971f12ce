"""Softmax, layer_norm and gelu with their gradients (NUMERICS 6.1 - 6.10)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    FLOATS,
    INT,
    INTS,
    Result,
    Types,
    axis_of,
    check_dtype,
    check_shape,
    describe,
    integer,
    integers,
    operands,
)
from tallystick.numerics.registry import AttrSpec, operator
from tallystick.numerics.types import Attrs, TensorType


def _same_f32(op: str, inputs: Types, count: int) -> TensorType:
    """`count` f32 operands of one shape; that type. Raises UsageError."""
    types = operands(op, inputs, count)
    for t in types:
        check_dtype(op, t, FLOATS)
        check_shape(op, "each operand", t, types[0].shape)
    return types[0]


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
def _declare_softmax(name: str, clause: str, *names: str) -> None:
    @operator(name, clause=clause, operands=names, attrs={"dim": INT}, op_class="composite")
    def rule(op: str, attrs: Attrs, inputs: Types) -> Result:
        t = _same_f32(op, inputs, len(names))
        axis_of(op, integer(attrs, "dim"), len(t.shape))
        return (t,)


_declare_softmax("aten._softmax", "6.1", "x")
_declare_softmax("aten._log_softmax", "6.2", "x")
_declare_softmax("aten._softmax_backward_data", "6.3", "grad", "y")
_declare_softmax("aten._log_softmax_backward_data", "6.4", "grad", "y")


# --- layer_norm (6.5, 6.6) ------------------------------------------------------------------------
def _normalized(op: str, attrs: Attrs, x: TensorType) -> tuple[int, ...]:
    """normalized_shape, if it is x's trailing shape. Raises UsageError."""
    shape = integers(attrs, "normalized_shape")
    if not shape or len(shape) > len(x.shape) or x.shape[len(x.shape) - len(shape) :] != shape:
        raise UsageError(f"{op}: normalized_shape {list(shape)} is not the trailing shape of {x}.")
    return shape


def _statistics_shape(x: TensorType, shape: tuple[int, ...]) -> tuple[int, ...]:
    return x.shape[: len(x.shape) - len(shape)] + (1,) * len(shape)


def _check_affine(op: str, inputs: Types, first: int, shape: tuple[int, ...]) -> None:
    """Weight and bias at `first` and after it, either absent or f32 of `shape`."""
    if len(inputs) > first + 2:
        raise UsageError(f"{op}: takes at most {first + 2} operands, got {describe(inputs)}.")
    for what, t in zip(("the weight", "the bias"), inputs[first:], strict=False):
        if t is not None:
            check_dtype(op, t, FLOATS)
            check_shape(op, what, t, shape)


@operator(
    "aten.native_layer_norm",
    clause="6.5",
    operands=("x", "weight?", "bias?"),
    attrs={"normalized_shape": INTS, "eps": AttrSpec("float", 1e-5)},
    op_class="composite",
)
def _layer_norm(op: str, attrs: Attrs, inputs: Types) -> Result:
    x = _same_f32(op, inputs[:1], 1)
    shape = _normalized(op, attrs, x)
    _check_affine(op, inputs, 1, shape)
    statistics = TensorType("f32", _statistics_shape(x, shape))
    return x, statistics, statistics


def output_mask(op: str, attrs: Attrs) -> tuple[bool, bool, bool]:
    mask = attrs["output_mask"]
    if not isinstance(mask, tuple) or len(mask) != 3:
        raise UsageError(f"{op}: output_mask must have three entries, got {mask!r}.")
    return bool(mask[0]), bool(mask[1]), bool(mask[2])


@operator(
    "aten.native_layer_norm_backward",
    clause="6.6",
    operands=("grad", "x", "mean", "rstd", "weight?", "bias?"),
    attrs={"normalized_shape": INTS, "output_mask": AttrSpec("bools", (True, True, True))},
    op_class="composite",
)
def _layer_norm_backward(op: str, attrs: Attrs, inputs: Types) -> Result:
    x = _same_f32(op, inputs[:2], 2)
    shape = _normalized(op, attrs, x)
    for what, t in zip(("the mean", "rstd"), operands(op, inputs[2:4], 2), strict=True):
        check_dtype(op, t, FLOATS)
        check_shape(op, what, t, _statistics_shape(x, shape))
    _check_affine(op, inputs, 4, shape)
    affine = TensorType("f32", shape)
    wanted = zip((x, affine, affine), output_mask(op, attrs), strict=True)
    return tuple(t for t, on in wanted if on)
