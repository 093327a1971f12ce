"""Softmax, layer_norm and gelu with their gradients (NUMERICS 6.1 - 6.10)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tallystick import _core
from tallystick.errors import UsageError
from tallystick.numerics.ops._common import (
    FLOATS,
    Arrays,
    Outputs,
    Result,
    Types,
    axis_of,
    check_dtype,
    check_shape,
    describe,
    integer,
    integers,
    number,
    operand,
    operands,
    optional,
    rn32,
    text,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import Attrs, TensorType

_DIM = {"dim": AttrSpec("int")}
_APPROXIMATE = {"approximate": AttrSpec("str")}


def _same_f32(op: str, inputs: Types, count: int) -> TensorType:
    """`count` f32 operands of one shape; that type. Raises UsageError."""
    types = operands(op, inputs, count)
    for t in types:
        check_dtype(op, t, FLOATS)
        check_shape(op, "each operand", t, types[0].shape)
    return types[0]


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
def _along(
    kernel: Callable[..., None], arrays: list[np.ndarray], out: np.ndarray, dim: int
) -> None:
    """kernel(*arrays, out, n) over rows along `dim`, by transposed copies unless it is last."""
    axis = axis_of("softmax", dim, out.ndim)
    n = out.shape[axis] if out.ndim else 1
    if out.size == 0:
        return
    if out.ndim == 0 or math.prod(out.shape[axis + 1 :]) == 1:
        kernel(*arrays, out, n)
        return
    rows = [np.ascontiguousarray(np.moveaxis(a, axis, -1)) for a in arrays]
    moved = np.empty(rows[0].shape, np.float32)
    kernel(*rows, moved, n)
    np.copyto(out, np.moveaxis(moved, -1, axis))


def _register_softmax(name: str, clause: str, count: int, kernel: Callable[..., None]) -> None:
    def infer(attrs: Attrs, inputs: Types) -> Result:
        t = _same_f32(name, inputs, count)
        axis_of(name, integer(attrs, "dim"), len(t.shape))
        return (t,)

    def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        arrays = [operand(inputs, i) for i in range(count)]
        _along(kernel, arrays, outputs[0], integer(attrs, "dim"))

    register(
        OpSpec(
            name=name,
            clause=clause,
            attrs=_DIM,
            infer=infer,
            run=run,
            inplace=tuple((i, 0) for i in range(count)),
            op_class="composite",
        )
    )


_register_softmax("aten._softmax", "6.1", 1, _core.softmax)
_register_softmax("aten._log_softmax", "6.2", 1, _core.log_softmax)
_register_softmax("aten._softmax_backward_data", "6.3", 2, _core.softmax_backward)
_register_softmax("aten._log_softmax_backward_data", "6.4", 2, _core.log_softmax_backward)


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


def _infer_layer_norm(attrs: Attrs, inputs: Types) -> Result:
    op = "aten.native_layer_norm"
    x = _same_f32(op, inputs[:1], 1)
    shape = _normalized(op, attrs, x)
    _check_affine(op, inputs, 1, shape)
    statistics = TensorType("f32", _statistics_shape(x, shape))
    return x, statistics, statistics


def _run_layer_norm(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.layer_norm(
        operand(inputs, 0),
        optional(inputs, 1),
        optional(inputs, 2),
        float(rn32(number(attrs, "eps"))),
        *outputs,
        math.prod(integers(attrs, "normalized_shape")),
    )


def _mask(op: str, attrs: Attrs) -> tuple[bool, bool, bool]:
    mask = attrs["output_mask"]
    if not isinstance(mask, tuple) or len(mask) != 3:
        raise UsageError(f"{op}: output_mask must have three entries, got {mask!r}.")
    return bool(mask[0]), bool(mask[1]), bool(mask[2])


def _infer_layer_norm_backward(attrs: Attrs, inputs: Types) -> Result:
    op = "aten.native_layer_norm_backward"
    x = _same_f32(op, inputs[:2], 2)
    shape = _normalized(op, attrs, x)
    for what, t in zip(("the mean", "rstd"), operands(op, inputs[2:4], 2), strict=True):
        check_dtype(op, t, FLOATS)
        check_shape(op, what, t, _statistics_shape(x, shape))
    _check_affine(op, inputs, 4, shape)
    affine = TensorType("f32", shape)
    wanted = zip((x, affine, affine), _mask(op, attrs), strict=True)
    return tuple(t for t, on in wanted if on)


def _run_layer_norm_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    remaining = iter(outputs)
    dx, dw, db = (next(remaining) if on else None for on in _mask("layer_norm", attrs))
    g, x = operand(inputs, 0), operand(inputs, 1)
    # Only dx may be the storage of g or x; another output that is gets a copy to read.
    for out in (dw, db):
        if out is not None:
            g = g.copy() if np.may_share_memory(out, g) else g
            x = x.copy() if np.may_share_memory(out, x) else x
    _core.layer_norm_backward(
        g,
        x,
        operand(inputs, 2),
        operand(inputs, 3),
        optional(inputs, 4),
        dx,
        dw,
        db,
        math.prod(integers(attrs, "normalized_shape")),
    )


register(
    OpSpec(
        name="aten.native_layer_norm",
        clause="6.5",
        attrs={"normalized_shape": AttrSpec("ints"), "eps": AttrSpec("float")},
        infer=_infer_layer_norm,
        run=_run_layer_norm,
        inplace=((0, 0),),
        op_class="composite",
    )
)
register(
    OpSpec(
        name="aten.native_layer_norm_backward",
        clause="6.6",
        attrs={"normalized_shape": AttrSpec("ints"), "output_mask": AttrSpec("bools")},
        infer=_infer_layer_norm_backward,
        run=_run_layer_norm_backward,
        inplace=((0, 0), (1, 0)),
        op_class="composite",
    )
)


# --- gelu (6.7 - 6.10) ----------------------------------------------------------------------------
def _is_tanh(op: str, attrs: Attrs) -> bool:
    approximate = text(attrs, "approximate")
    if approximate not in ("none", "tanh"):
        raise UsageError(f"{op}: approximate must be none or tanh, got {approximate!r}.")
    return approximate == "tanh"


def _infer_gelu(attrs: Attrs, inputs: Types) -> Result:
    _is_tanh("aten.gelu", attrs)
    return (_same_f32("aten.gelu", inputs, 1),)


def _run_gelu(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    _core.gelu(operand(inputs, 0), outputs[0], _is_tanh("aten.gelu", attrs))


def _infer_gelu_backward(attrs: Attrs, inputs: Types) -> Result:
    _is_tanh("aten.gelu_backward", attrs)
    return (_same_f32("aten.gelu_backward", inputs, 2),)


def _run_gelu_backward(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    tanh = _is_tanh("aten.gelu_backward", attrs)
    _core.gelu_backward(operand(inputs, 0), operand(inputs, 1), outputs[0], tanh)


register(
    OpSpec(
        name="aten.gelu",
        clause="6.7, 6.9",
        attrs=_APPROXIMATE,
        infer=_infer_gelu,
        run=_run_gelu,
        inplace=((0, 0),),
        op_class="composite",
    )
)
register(
    OpSpec(
        name="aten.gelu_backward",
        clause="6.8, 6.10",
        attrs=_APPROXIMATE,
        infer=_infer_gelu_backward,
        run=_run_gelu_backward,
        inplace=((0, 0), (1, 0)),
        op_class="composite",
    )
)
