"""Operators that move, shape or make data: bits are unchanged (NUMERICS 9)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from tallystick import _core
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.numerics.ops._common import (
    ANY,
    Arrays,
    Outputs,
    Result,
    Types,
    as_bytes,
    axis_of,
    broadcast,
    check_dtype,
    constant,
    describe,
    integer,
    integers,
    is_f32,
    number,
    operand,
    operands,
    register_named,
    same_dtype,
    text,
)
from tallystick.numerics.registry import AttrSpec, OpSpec, register
from tallystick.numerics.types import DTYPE_NAMES, Attrs, TensorType, type_of

_INT, _INTS, _FLOAT = AttrSpec("int"), AttrSpec("ints"), AttrSpec("float")
_RANGE = {"dim": _INT, "start": _INT, "end": _INT, "step": _INT}


def _register_view(
    name: str,
    attrs: dict[str, AttrSpec],
    infer: Callable[[str, Attrs, Types], Result],
    view: Callable[[Attrs, np.ndarray], np.ndarray],
) -> None:
    register(
        OpSpec(
            name=name,
            clause="9",
            attrs=attrs,
            infer=lambda a, types: infer(name, a, types),
            view=view,
            all_inputs_strided=True,
            op_class="move",
        )
    )


def _register(
    name: str,
    attrs: dict[str, AttrSpec],
    infer: Callable[[str, Attrs, Types], Result],
    run: Callable[[str, Attrs, Arrays, Outputs], None],
    inplace: tuple[tuple[int, int], ...] = (),
) -> None:
    register_named(
        name,
        "9",
        attrs,
        infer,
        run,
        all_inputs_strided=True,
        inplace=inplace,
        op_class="move",
    )


def copy(x: np.ndarray, out: np.ndarray) -> None:
    """Bits of x, of any strides, into C-contiguous `out` of the same dtype and shape."""
    _core.copy_strided(*((x.view(np.uint8), out.view(np.uint8)) if x.dtype == bool else (x, out)))


# --- views ----------------------------------------------------------------------------------------
def _infer_view(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    size = integers(attrs, "size")
    if any(n < 0 for n in size) or math.prod(size) != t.numel:
        raise UsageError(f"{op}: {t} cannot be seen as {list(size)}.")
    return (TensorType(t.dtype, size),)


def _infer_permute(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    dims = integers(attrs, "dims")
    if sorted(dims) != list(range(len(t.shape))):
        raise UsageError(f"{op}: {list(dims)} does not order the axes of {t}.")
    return (TensorType(t.dtype, tuple(t.shape[d] for d in dims)),)


def _infer_expand(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    size = integers(attrs, "size")
    lead = len(size) - len(t.shape)
    fits = lead >= 0 and all(n in (1, size[lead + i]) for i, n in enumerate(t.shape))
    if not fits or any(n < 0 for n in size):
        raise UsageError(f"{op}: {t} does not expand to {list(size)}.")
    return (TensorType(t.dtype, size),)


def _slice_of(op: str, attrs: Attrs, t: TensorType) -> tuple[int, slice, int]:
    """(axis, slice, number of elements it takes), bounds as canonical programs have them."""
    axis = axis_of(op, integer(attrs, "dim"), len(t.shape))
    start, end, step = (integer(attrs, k) for k in ("start", "end", "step"))
    if not t.shape or not 0 <= start <= end <= t.shape[axis] or step < 1:
        raise UsageError(f"{op}: {start}:{end}:{step} is no slice of axis {axis} of {t}.")
    return axis, slice(start, end, step), -((start - end) // step)


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _infer_slice(op: str, attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    axis, _, count = _slice_of(op, attrs, t)
    return (TensorType(t.dtype, _with(t.shape, axis, count)),)


def _sliced(op: str, attrs: Attrs, x: np.ndarray) -> np.ndarray:
    axis, taken, _ = _slice_of(op, attrs, type_of(x))
    return x[(slice(None),) * axis + (taken,)]


_register_view(
    "aten.view", {"size": _INTS}, _infer_view, lambda a, x: x.reshape(integers(a, "size"))
)
_register_view(
    "aten.permute", {"dims": _INTS}, _infer_permute, lambda a, x: x.transpose(integers(a, "dims"))
)
_register_view(
    "aten.expand",
    {"size": _INTS},
    _infer_expand,
    lambda a, x: np.broadcast_to(x, integers(a, "size")),
)
_register_view("aten.slice", _RANGE, _infer_slice, lambda a, x: _sliced("aten.slice", a, x))


# --- joining and scattering -----------------------------------------------------------------------
def _infer_slice_scatter(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, src = operands(op, inputs, 2)
    same_dtype(op, (x, src))
    axis, _, count = _slice_of(op, attrs, x)
    if src.shape != _with(x.shape, axis, count):
        raise UsageError(f"{op}: {src} does not fill the slice of {x}.")
    return (x,)


def _run_slice_scatter(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if out.__array_interface__["data"][0] != x.__array_interface__["data"][0]:
        copy(x, out)
    _sliced(op, attrs, out)[...] = operand(inputs, 1)


_register("aten.slice_scatter", _RANGE, _infer_slice_scatter, _run_slice_scatter, ((0, 0),))


def _infer_cat(op: str, attrs: Attrs, inputs: Types) -> Result:
    types = operands(op, inputs, max(len(inputs), 1))
    dtype = same_dtype(op, types)
    axis = axis_of(op, integer(attrs, "dim"), len(types[0].shape))
    first = types[0].shape
    if not first or any(len(t.shape) != len(first) for t in types):
        raise UsageError(f"{op}: {describe(inputs)} cannot be joined.")
    if any(_with(t.shape, axis, 0) != _with(first, axis, 0) for t in types):
        raise UsageError(f"{op}: {describe(inputs)} differ beside axis {axis}.")
    return (TensorType(dtype, _with(first, axis, sum(t.shape[axis] for t in types))),)


def _run_cat(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    out = outputs[0]
    parts = [operand(inputs, i) for i in range(len(inputs))]
    np.concatenate(parts, axis=axis_of(op, integer(attrs, "dim"), out.ndim), out=out)


_register("aten.cat", {"dim": _INT}, _infer_cat, _run_cat)


# --- reading by index -----------------------------------------------------------------------------
def _check_indices(op: str, index: np.ndarray, size: int) -> None:
    if index.size and not 0 <= int(index.min()) <= int(index.max()) < size:
        raise RefusedOperandsError(op, f"an index is outside [0, {size}).")


def _infer_gather(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, index = operands(op, inputs, 2)
    check_dtype(op, index, ("i64",))
    axis = axis_of(op, integer(attrs, "dim"), len(x.shape))
    if len(x.shape) != len(index.shape) or any(
        index.shape[i] > n for i, n in enumerate(x.shape) if i != axis
    ):
        raise UsageError(f"{op}: indices {index} do not fit {x} along axis {axis}.")
    return (TensorType(x.dtype, index.shape),)


def _run_gather(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, index, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    if x.ndim == 0:
        _check_indices(op, index, 1)
        out[...] = x
        return
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    _check_indices(op, index, x.shape[axis])
    if index.size == 0:
        return
    # Axes beside `dim` may be shorter in the index than in x.
    near = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(index.shape))
    out[...] = np.take_along_axis(x[near], index, axis)


_register("aten.gather", {"dim": _INT}, _infer_gather, _run_gather)


def _infer_index_select(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, index = operands(op, inputs, 2)
    check_dtype(op, index, ("i64",))
    axis = axis_of(op, integer(attrs, "dim"), len(x.shape))
    if len(index.shape) != 1 or not x.shape:
        raise UsageError(f"{op}: takes a tensor with axes and a list of indices, got {index}.")
    return (TensorType(x.dtype, _with(x.shape, axis, index.shape[0])),)


def _run_index_select(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, index = operand(inputs, 0), operand(inputs, 1)
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    _check_indices(op, index, x.shape[axis])
    if index.size:
        # The check above makes clipping idle; it lets numpy write straight into the output.
        np.take(x, index, axis=axis, out=outputs[0], mode="clip")


_register("aten.index_select", {"dim": _INT}, _infer_index_select, _run_index_select)


# --- choosing -------------------------------------------------------------------------------------
def _infer_where(op: str, _attrs: Attrs, inputs: Types) -> Result:
    condition, a, b = operands(op, inputs, 3)
    check_dtype(op, condition, ("bool",))
    dtype = same_dtype(op, (a, b))
    return (TensorType(dtype, broadcast(op, (condition, a, b))),)


def _run_where(_op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    condition, a, b = (operand(inputs, i) for i in range(3))
    if is_f32(a):
        _core.ew3("where", as_bytes(condition), a, b, outputs[0])
    else:
        outputs[0][...] = np.where(condition, a, b)


_register("aten.where", {}, _infer_where, _run_where, ((1, 0), (2, 0)))


def _infer_masked_fill(op: str, attrs: Attrs, inputs: Types) -> Result:
    x, mask = operands(op, inputs, 2)
    check_dtype(op, mask, ("bool",))
    constant(op, "value", number(attrs, "value"), x.dtype)
    if broadcast(op, (x, mask)) != x.shape:
        raise UsageError(f"{op}: the mask {mask} does not broadcast to {x}.")
    return (x,)


def _run_masked_fill(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, mask = operand(inputs, 0), operand(inputs, 1)
    value = number(attrs, "value")
    if is_f32(x):
        fill = constant(op, "value", value, "f32")
        _core.ew3("where", as_bytes(mask), fill, x, outputs[0])
    else:
        fill = constant(op, "value", value, DTYPE_NAMES[x.dtype])
        outputs[0][...] = np.where(mask, fill, x)


_register("aten.masked_fill", {"value": _FLOAT}, _infer_masked_fill, _run_masked_fill, ((0, 0),))


# --- making ---------------------------------------------------------------------------------------
def _no_operands(op: str, inputs: Types) -> None:
    if inputs:
        raise UsageError(f"{op}: takes no operands, got {describe(inputs)}.")


def _infer_full(op: str, attrs: Attrs, inputs: Types) -> Result:
    _no_operands(op, inputs)
    size, dtype = integers(attrs, "size"), text(attrs, "dtype")
    if dtype not in ANY or any(n < 0 for n in size):
        raise UsageError(f"{op}: {dtype} {list(size)} is no tensor type.")
    constant(op, "value", number(attrs, "value"), dtype)
    return (TensorType(dtype, size),)


def _run_full(op: str, attrs: Attrs, _inputs: Arrays, outputs: Outputs) -> None:
    outputs[0][...] = constant(op, "value", number(attrs, "value"), text(attrs, "dtype"))


_FULL = {"size": _INTS, "value": _FLOAT, "dtype": AttrSpec("dtype")}
_register("aten.full", _FULL, _infer_full, _run_full)


def _infer_arange(op: str, attrs: Attrs, inputs: Types) -> Result:
    _no_operands(op, inputs)
    start, end, step = (number(attrs, k) for k in ("start", "end", "step"))
    dtype = text(attrs, "dtype")
    if dtype not in ("f32", "i64"):
        raise UsageError(f"{op}: is defined on f32, i64, got {dtype}.")
    if not all(map(math.isfinite, (start, end, step))) or step == 0.0:
        raise UsageError(f"{op}: start, end and step must be finite, and step not zero.")
    if dtype == "i64":
        for name in ("start", "end", "step"):
            constant(op, name, number(attrs, name), dtype)
    # The number of elements is exact (NUMERICS 9.1), not what a rounded quotient would give.
    count = math.ceil((Fraction(end) - Fraction(start)) / Fraction(step))
    return (TensorType(dtype, (max(count, 0),)),)


def _run_arange(_op: str, attrs: Attrs, _inputs: Arrays, outputs: Outputs) -> None:
    out = outputs[0]
    start, step = number(attrs, "start"), number(attrs, "step")
    if out.dtype == np.int64:
        out[...] = np.arange(out.size, dtype=np.int64) * np.int64(int(step)) + np.int64(int(start))
        return
    # start + i·step in binary64, each operation rounded, then RN32 (NUMERICS 9.1).
    with np.errstate(over="ignore"):
        out[...] = (np.arange(out.size, dtype=np.float64) * step + start).astype(np.float32)


_register(
    "aten.arange",
    {"start": _FLOAT, "end": _FLOAT, "step": _FLOAT, "dtype": AttrSpec("dtype")},
    _infer_arange,
    _run_arange,
)


def _infer_triangle(op: str, _attrs: Attrs, inputs: Types) -> Result:
    (t,) = operands(op, inputs, 1)
    if len(t.shape) < 2:
        raise UsageError(f"{op}: needs a matrix, got {t}.")
    return (t,)


def _run_triangle(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    rows, cols = x.shape[-2:]
    offset = np.arange(cols)[None, :] - np.arange(rows)[:, None]
    diagonal = integer(attrs, "diagonal")
    kept = offset <= diagonal if op == "aten.tril" else offset >= diagonal
    out[...] = np.where(kept, x, np.zeros((), x.dtype))


for _name in ("aten.tril", "aten.triu"):
    _register(_name, {"diagonal": _INT}, _infer_triangle, _run_triangle)
