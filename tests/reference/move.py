"""Scatter class (NUMERICS 4) and data movement (NUMERICS 9). Movement keeps bits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from reference.floats import F32, F64, NAN32, NAN64, rn32

Inputs = list[Any]
Attrs = dict[str, Any]
DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "i64": np.int64,
    "i32": np.int32,
    "u8": np.uint8,
    "bool": np.bool_,
    "bf16": np.dtype([("bf16", "<u2")]),  # its bits: 1.14
    "f16": np.float16,
}


def constant(value: float, dtype: Any) -> np.ndarray:
    """An attribute as one element (10.1)."""
    dtype = np.dtype(dtype)
    if value != value:
        return np.asarray(NAN32.view(F32) if dtype == F32 else NAN64.view(F64))
    if dtype == F32:
        return np.asarray(rn32(value))
    return np.asarray(value, F64) if dtype == F64 else np.asarray(int(value)).astype(dtype)


def _embedding_backward(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    grad, index = inputs
    out = np.zeros((attrs["num_weights"], grad.shape[-1]), F32)
    rows, flat = grad.reshape(index.size, grad.shape[-1]), index.reshape(-1)
    for source in range(index.size):
        if attrs["padding_idx"] < 0 or flat[source] != attrs["padding_idx"]:
            out[flat[source]] = out[flat[source]] + rows[source]
    return [out]


def _index_add(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, index, source = inputs
    out = np.moveaxis(np.array(x), attrs["dim"], 0)
    slices = np.moveaxis(source, attrs["dim"], 0)
    for i in range(index.size):
        out[index[i]] = out[index[i]] + slices[i]
    return [np.moveaxis(out, 0, attrs["dim"])]


def _taken(attrs: Attrs, x: np.ndarray) -> tuple[slice, ...]:
    cut = slice(attrs["start"], attrs["end"], attrs["step"])
    return (slice(None),) * (attrs["dim"] % x.ndim) + (cut,)


def _slice_scatter(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    out = np.array(inputs[0])
    out[_taken(attrs, out)] = inputs[1]
    return [out]


def _gather(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, index = inputs
    out = np.zeros(index.shape, x.dtype)
    for at in np.ndindex(*index.shape):
        where = list(at)
        if x.ndim:
            where[attrs["dim"] % x.ndim] = int(index[at])
        out[at] = x[tuple(where)]
    return [out]


def _index_select(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, index = inputs
    moved = np.moveaxis(x, attrs["dim"], 0)
    picked = np.zeros((index.size, *moved.shape[1:]), x.dtype)
    for i in range(index.size):
        picked[i] = moved[index[i]]
    return [np.moveaxis(picked, 0, attrs["dim"])]


def _scatter(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, index, source = inputs
    out = np.array(x)
    for at in np.ndindex(*index.shape):  # row-major: a later source replaces an earlier one
        where = list(at)
        if x.ndim:
            where[attrs["dim"] % x.ndim] = int(index[at])
        out[tuple(where)] = source[at]
    return [out]


def _where(_attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    c, a, b = np.broadcast_arrays(*inputs)
    return [np.where(c, a, b)]


def _masked_fill(attrs: Attrs, inputs: Inputs) -> list[np.ndarray]:
    x, mask = inputs
    return [np.where(np.broadcast_to(mask, x.shape), constant(attrs["value"], x.dtype), x)]


def _arange(attrs: Attrs, _inputs: Inputs) -> list[np.ndarray]:
    start, end, step = (attrs[k] for k in ("start", "end", "step"))
    count = max(0, math.ceil((Fraction(end) - Fraction(start)) / Fraction(step)))
    if attrs["dtype"] == "i64":
        return [np.array([int(start) + i * int(step) for i in range(count)], np.int64)]
    return [np.array([F32(F64(start) + F64(i) * F64(step)) for i in range(count)], F32)]


def _triangle(attrs: Attrs, inputs: Inputs, lower: bool) -> list[np.ndarray]:
    (x,) = inputs
    out = np.zeros(x.shape, x.dtype)
    for i, j in np.ndindex(*x.shape[-2:]):
        offset = j - i
        if offset <= attrs["diagonal"] if lower else offset >= attrs["diagonal"]:
            out[..., i, j] = x[..., i, j]
    return [out]


def _full(attrs: Attrs, _inputs: Inputs) -> list[np.ndarray]:
    dtype = np.dtype(DTYPES[attrs["dtype"]])
    return [np.full(attrs["size"], constant(attrs["value"], dtype), dtype)]


SCATTER = {
    "aten.embedding_dense_backward": _embedding_backward,
    "aten.index_add": _index_add,
}
MOVE = {
    "aten.view": lambda a, x: [x[0].reshape(a["size"])],
    "aten.permute": lambda a, x: [np.transpose(x[0], a["dims"])],
    "aten.expand": lambda a, x: [np.broadcast_to(x[0], a["size"])],
    "aten.slice": lambda a, x: [x[0][_taken(a, x[0])]],
    "aten.slice_scatter": _slice_scatter,
    "aten.cat": lambda a, x: [np.concatenate(x, axis=a["dim"])],
    "aten.embedding": lambda a, x: [
        _index_select({"dim": 0}, [x[0], x[1].reshape(-1)])[0].reshape(*x[1].shape, x[0].shape[1])
    ],
    "aten.gather": _gather,
    "aten.index_select": _index_select,
    "aten.scatter.src": _scatter,
    "aten.where": _where,
    "aten.masked_fill": _masked_fill,
    "aten.full": _full,
    "aten.arange": _arange,
    "aten.tril": lambda a, x: _triangle(a, x, True),
    "aten.triu": lambda a, x: _triangle(a, x, False),
}
