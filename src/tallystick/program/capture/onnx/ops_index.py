"""Operators that choose, order and place elements by integers."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, made_tensor, rule
from tallystick.program.capture.onnx.ops_shape import _axis as axis_of
from tallystick.program.capture.onnx.ops_shape import sliced


def _counted(indices: Tensor, size: int) -> Tensor:
    """Indices from the end become ones from the beginning."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@rule("Gather 1-13", folds=True)
def _gather(c: OnnxCall) -> Tensor:
    x, known = c.tensor(0), c.known(1)
    axis = axis_of(c.attr("axis"), x.dim())
    size = x.shape[axis]
    if known is not None:
        places = np.where(known < 0, known + size, known).astype(np.int64)
        if places.size and not (places.min() >= 0 and places.max() < size):
            raise ValueError(f"an index outside of [{-size}, {size})")
        if places.ndim == 0:
            return x.select(axis, int(places))
        if places.size and np.array_equal(places, places.flat[0] + np.arange(places.size)):
            return sliced(x, axis, range(int(places[0]), int(places[-1]) + 1))
    indices = c.tensor(1)
    if known is None or (known < 0).any():
        indices = _counted(indices, size)
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return F.embedding(indices, x)
    found = torch.index_select(x, axis, indices.reshape(-1))
    return found.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@rule("GatherElements 11-13")
def _gather_elements(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    axis = axis_of(c.attr("axis"), x.dim())
    return torch.gather(x, axis, _counted(c.tensor(1), x.shape[axis]))


def _rows(x: Tensor, indices: Tensor, skipped: int = 0) -> tuple[Tensor, list[int]]:
    """Of indices into the axes of `x` after `skipped`: one number each, and the axes left."""
    depth, shape = indices.shape[-1], x.shape
    number = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
    for place in range(depth):
        size = shape[skipped + place]
        number = number * size + _counted(indices[..., place], size)
    for place in range(skipped):
        line = torch.arange(shape[place], device=x.device)
        factor = math.prod(shape[place + 1 : skipped + depth])
        number = number + (line * factor).reshape([-1] + [1] * (number.dim() - place - 1))
    return number, list(shape[skipped + depth :])


@rule("GatherND 11-13", folds=True)
def _gather_nd(c: OnnxCall) -> Tensor:
    x, indices, batch = c.tensor(0), c.tensor(1), c.attr("batch_dims", 0)
    number, rest = _rows(x, indices, batch)
    flat = x.reshape(math.prod(x.shape[: batch + indices.shape[-1]]), math.prod(rest))
    found = torch.index_select(flat, 0, number.reshape(-1))
    return found.reshape([*number.shape, *rest])


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scattered(c: OnnxCall, x: Tensor, axis: int, indices: Tensor, updates: Tensor) -> Tensor:
    how = c.attr("reduction", "none")
    if how == "none":
        return torch.scatter(x, axis, indices, updates)
    if how == "add":
        return torch.scatter_add(x, axis, indices, updates)
    return torch.scatter_reduce(x, axis, indices, updates, _REDUCTIONS[how])


@rule("Scatter 9", "ScatterElements 11-18")
def _scatter_elements(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    axis = axis_of(c.attr("axis"), x.dim())
    return _scattered(c, x, axis, _counted(c.tensor(1), x.shape[axis]), c.tensor(2))


@rule("ScatterND 11-18")
def _scatter_nd(c: OnnxCall) -> Tensor:
    x, indices, updates = c.tensor(0), c.tensor(1), c.tensor(2)
    number, rest = _rows(x, indices)
    width = math.prod(rest)
    flat = x.reshape(math.prod(x.shape[: indices.shape[-1]]), width)
    rows = number.reshape(-1, 1).expand(-1, width)
    return _scattered(c, flat, 0, rows, updates.reshape(-1, width)).reshape(x.shape)


@rule("TensorScatter 24", folds=False)
def _tensor_scatter(c: OnnxCall) -> Tensor:
    past, update, mode = c.tensor(0), c.tensor(1), c.attr("mode")
    axis, starts = axis_of(c.attr("axis"), past.dim()), c.optional(2)
    count, size = update.shape[axis], past.shape[axis]
    line = torch.arange(count, device=past.device).reshape([-1] + [1] * (past.dim() - axis - 1))
    places = line
    if starts is not None:
        places = line + starts.reshape([-1] + [1] * (past.dim() - 1))
    if mode == "circular":
        places = torch.remainder(places, size)
    return torch.scatter(past, axis, places.expand(update.shape), update)


@rule("ArgMax 1-13", "ArgMin 1-13", named=True)
def _arg(name: str, c: OnnxCall) -> Tensor:
    x, keeps = c.tensor(0), bool(c.attr("keepdims"))
    axis, last = axis_of(c.attr("axis"), x.dim()), c.attr("select_last_index", 0)
    function = torch.argmax if name == "ArgMax" else torch.argmin
    if last:
        return (x.shape[axis] - 1) - function(torch.flip(x, (axis,)), dim=axis, keepdim=keeps)
    return function(x, dim=axis, keepdim=keeps)


@rule("TopK 1-24", static=(1,))
def _top_k(c: OnnxCall) -> tuple[Tensor, Tensor]:
    """Of equal elements the first ones: a stable order, as the standard asks."""
    x = c.tensor(0)
    axis = axis_of(c.attr("axis"), x.dim())
    k = c.attr("k") if c.version < 10 else int(c.one(1))
    largest, in_order = bool(c.attr("largest", 1)), c.attr("sorted", 1)
    del in_order  # any order is allowed where it is 0
    values, indices = torch.sort(x, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k), indices.narrow(axis, 0, k)


@rule("OneHot 9-28", static=(1,), settings=(2,))
def _one_hot(c: OnnxCall) -> Tensor:
    indices, depth, axis = c.tensor(0), int(c.one(1)), c.attr("axis")
    axis = axis_of(axis, indices.dim() + 1)
    places = torch.arange(depth, device=indices.device)
    places = places.reshape([-1] + [1] * (indices.dim() - axis))
    chosen = _counted(indices, depth).unsqueeze(axis) == places
    values = c.tensor(2)
    return torch.where(chosen, values[1], values[0])


@rule("Compress 9-28", static=(1,))
def _compress(c: OnnxCall) -> Tensor:
    x, axis = c.tensor(0), c.attr("axis")
    places = np.flatnonzero(c.array(1))
    if axis is None:
        x, axis = x.reshape(-1), 0
    indices = made_tensor(places.astype(np.int64), c.device)
    return torch.index_select(x, axis_of(axis, x.dim()), indices)


@rule("NonZero 9-13", static=(0,), folds=True)
def _non_zero(c: OnnxCall) -> Tensor:
    """Of a known tensor alone: its shape is its content."""
    return made_tensor(np.array(np.nonzero(c.array(0)), np.int64), c.device)


@rule("CumSum 11-14", "CumProd 26", static=(1,), folds=True, named=True)
def _cumulative(name: str, c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    axis, exclusive = axis_of(int(c.one(1)), x.dim()), c.attr("exclusive")
    backwards = c.attr("reverse")
    x = torch.flip(x, (axis,)) if backwards else x
    dtype = x.dtype
    if exclusive:
        filling = torch.zeros if name == "CumSum" else torch.ones
        sizes = [1 if i == axis else n for i, n in enumerate(x.shape)]
        head = filling(sizes, dtype=dtype, device=x.device)
        x = torch.cat([head, x.narrow(axis, 0, x.shape[axis] - 1)], dim=axis)
    x = (torch.cumsum if name == "CumSum" else torch.cumprod)(x, dim=axis).to(dtype)
    return torch.flip(x, (axis,)) if backwards else x


@rule("ReverseSequence 10-28")
def _reverse_sequence(c: OnnxCall) -> Tensor:
    """In each row of the batch the first elements in reverse, as many as its length says."""
    x, lengths = c.tensor(0), c.tensor(1)
    batch, time = c.attr("batch_axis"), c.attr("time_axis")
    sizes = [1] * x.dim()
    line = torch.arange(x.shape[time], device=x.device).reshape(
        [n if i == time else 1 for i, n in enumerate(x.shape)]
    )
    sizes[batch] = x.shape[batch]
    length = lengths.to(torch.int64).reshape(sizes)
    places = torch.where(line < length, length - 1 - line, line)
    return torch.gather(x, time, places.expand(x.shape))
