"""Kernels that move, shape or make data (NUMERICS 9), and of the scatter class (4)."""

from __future__ import annotations

import math

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.device import Arrays, Outputs, as_bytes, copy, operand
from tallystick.errors import RefusedOperandsError
from tallystick.kernels.evaluate import sliced
from tallystick.numerics.operators.common import axis_of, constant, integer, number, text
from tallystick.numerics.types import DTYPE_NAMES, Attrs


# --- joining and scattering -----------------------------------------------------------------------
@kernel("aten.slice_scatter", named=True, strided=True, inplace=((0, 0),))
def _slice_scatter(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    if out.__array_interface__["data"][0] != x.__array_interface__["data"][0]:
        copy(x, out)
    sliced(op, attrs, out)[...] = operand(inputs, 1)


@kernel("aten.cat", named=True, strided=True)
def _cat(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    out = outputs[0]
    parts = [operand(inputs, i) for i in range(len(inputs))]
    np.concatenate(parts, axis=axis_of(op, integer(attrs, "dim"), out.ndim), out=out)


# --- reading by index -----------------------------------------------------------------------------
def check_indices(op: str, index: np.ndarray, size: int) -> None:
    """Every index in [0, size). Raises RefusedOperandsError."""
    if index.size and not 0 <= int(index.min()) <= int(index.max()) < size:
        raise RefusedOperandsError(op, f"an index is outside [0, {size}).")


@kernel("aten.gather", named=True, strided=True)
def _gather(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, index, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    if x.ndim == 0:
        check_indices(op, index, 1)
        out[...] = x
        return
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    check_indices(op, index, x.shape[axis])
    if index.size == 0:
        return
    # Axes beside `dim` may be shorter in the index than in x.
    near = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(index.shape))
    out[...] = np.take_along_axis(x[near], index, axis)


@kernel("aten.index_select", named=True, strided=True)
def _index_select(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, index = operand(inputs, 0), operand(inputs, 1)
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    check_indices(op, index, x.shape[axis])
    if index.size:
        # After the check above nothing is clipped. This mode lets numpy write straight into the
        # output.
        np.take(x, index, axis=axis, out=outputs[0], mode="clip")


# --- writing by index (NUMERICS 9.3) --------------------------------------------------------------
def _places(shape: tuple[int, ...], axis: int, index: np.ndarray) -> np.ndarray:
    """The row-major position in `shape` to which each element of `index` goes along `axis`."""
    places, step = np.zeros(index.shape, np.int64), 1
    for i in reversed(range(len(shape))):
        along = np.arange(index.shape[i]).reshape(-1, *(1,) * (index.ndim - 1 - i))
        places += (index if i == axis else along) * step
        step *= shape[i]
    return places


@kernel("aten.scatter.src", named=True, strided=True, inplace=((0, 0),))
def _scatter(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, index, source = (operand(inputs, i) for i in range(3))
    out = outputs[0]
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    check_indices(op, index, x.shape[axis] if x.ndim else 1)
    if out.__array_interface__["data"][0] != x.__array_interface__["data"][0]:
        copy(x, out)
    # numpy assigns to a list of positions in its order, so the last of equals stays.
    out.reshape(-1)[_places(x.shape, axis, index).reshape(-1)] = source.reshape(-1)


# --- choosing -------------------------------------------------------------------------------------
@kernel("aten.where", named=True, strided=True, inplace=((1, 0), (2, 0)))
def _where(_op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    condition, a, b = (operand(inputs, i) for i in range(3))
    if a.dtype == np.float32:
        _core.ew3("where", as_bytes(condition), a, b, outputs[0])
    else:
        outputs[0][...] = np.where(condition, a, b)


@kernel("aten.masked_fill", named=True, strided=True, inplace=((0, 0),))
def _masked_fill(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, mask = operand(inputs, 0), operand(inputs, 1)
    value = number(attrs, "value")
    if x.dtype == np.float32:
        fill = constant(op, "value", value, "f32")
        _core.ew3("where", as_bytes(mask), fill, x, outputs[0])
    else:
        fill = constant(op, "value", value, DTYPE_NAMES[x.dtype])
        outputs[0][...] = np.where(mask, fill, x)


# --- making ---------------------------------------------------------------------------------------
@kernel("aten.full", named=True, strided=True)
def _full(op: str, attrs: Attrs, _inputs: Arrays, outputs: Outputs) -> None:
    outputs[0][...] = constant(op, "value", number(attrs, "value"), text(attrs, "dtype"))


@kernel("aten.arange", named=True, strided=True)
def _arange(_op: str, attrs: Attrs, _inputs: Arrays, outputs: Outputs) -> None:
    out = outputs[0]
    start, step = number(attrs, "start"), number(attrs, "step")
    if out.dtype == np.int64:
        out[...] = np.arange(out.size, dtype=np.int64) * np.int64(int(step)) + np.int64(int(start))
        return
    # start + i·step in binary64, each operation rounded, then RN32 (NUMERICS 9.1).
    with np.errstate(over="ignore"):
        out[...] = (np.arange(out.size, dtype=np.float64) * step + start).astype(np.float32)


@kernel("aten.tril", "aten.triu", named=True, strided=True)
def _triangle(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, out = operand(inputs, 0), outputs[0]
    rows, cols = x.shape[-2:]
    offset = np.arange(cols)[None, :] - np.arange(rows)[:, None]
    diagonal = integer(attrs, "diagonal")
    kept = offset <= diagonal if op == "aten.tril" else offset >= diagonal
    out[...] = np.where(kept, x, np.zeros((), x.dtype))


def _check_range(op: str, index: np.ndarray, limit: int) -> None:
    """Check that every index is in [0, limit) (NUMERICS 4.2, 9). Raises RefusedOperandsError."""
    flat = index.reshape(-1)
    bad = np.flatnonzero((flat < 0) | (flat >= limit))
    if bad.size:
        raise RefusedOperandsError(
            op, f"index {flat[bad[0]]} at position {bad[0]} is outside [0, {limit})."
        )


# --- embedding (9, 4.2) ---------------------------------------------------------------------------
@kernel("aten.embedding", named=True)
def _embedding(op: str, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    weight, index = operand(inputs, 0), operand(inputs, 1)
    _check_range(op, index, weight.shape[0])
    _core.embedding(weight, index, outputs[0])


@kernel("aten.embedding_dense_backward", named=True)
def _embedding_backward(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    grad, index = operand(inputs, 0), operand(inputs, 1)
    _check_range(op, index, integer(attrs, "num_weights"))
    _core.embedding_dense_backward(grad, index, integer(attrs, "padding_idx"), outputs[0])


# --- index_add (4.3) ------------------------------------------------------------------------------
@kernel("aten.index_add", named=True, inplace=((0, 0),))
def _index_add(op: str, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    x, index, source = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    axis = axis_of(op, integer(attrs, "dim"), x.ndim)
    _check_range(op, index, x.shape[axis])
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    _core.index_add(x, index, source, outer, inner, outputs[0])
