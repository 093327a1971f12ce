"""Operators that move, repeat or make elements. Their forms are known before any data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import (
    Known,
    OnnxCall,
    allow,
    broadcast,
    made_tensor,
    rule,
)


def _axes(c: OnnxCall, before: int, position: int, rank: int) -> list[int] | None:
    """Axes from an attribute before version `before`, from an input since; None where absent."""
    given = c.attr("axes")
    found = given if c.version < before or not c.has(position) else c.ints(position)
    return None if found is None else [_axis(axis, rank) for axis in found]


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} of a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


@rule("Shape 1-25", of_shape=True, folds=True)
def _shape(c: OnnxCall) -> Known:
    value: Any = c.values[0]
    return np.array(list(value.shape)[slice(c.attr("start", 0), c.attr("end"))], np.int64)


@rule("Size 1-25", of_shape=True, folds=True)
def _size(c: OnnxCall) -> Known:
    value: Any = c.values[0]
    return np.array(math.prod(value.shape), np.int64)


@rule("Constant 1-25", folds=True)
def _constant(c: OnnxCall) -> Tensor:
    raise c.refuse("it was not read as a constant.")


@rule("ConstantOfShape 9-25", static=(0,), folds=True)
def _constant_of_shape(c: OnnxCall) -> Tensor:
    value, shape = c.attr("value"), c.ints(0)
    array = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    one = made_tensor(array[:1], c.device)
    allow(c, shape, one.dtype)
    return torch.full(shape, array[0].item(), dtype=one.dtype, device=c.device)


@rule("Range 11-27", static=(0, 1, 2), folds=True)
def _range(c: OnnxCall) -> Tensor:
    kind, start, limit, delta = c.attr("stash_type"), c.one(0), c.one(1), c.one(2)
    del kind  # of half-precision numbers only
    count = max(math.ceil((limit - start) / delta), 0)
    dtype = c.tensor(0).dtype
    allow(c, [count], dtype)
    if not dtype.is_floating_point:
        return torch.arange(int(start), int(start) + count * int(delta), int(delta),
                            dtype=dtype, device=c.device)  # fmt: skip
    line = torch.arange(count, dtype=torch.int64, device=c.device).to(dtype)
    found: Tensor = line * delta + start
    return found


@rule("EyeLike 9-22", folds=True)
def _eye_like(c: OnnxCall) -> Tensor:
    x, k, number = c.tensor(0), c.attr("k"), c.attr("dtype")
    rows, columns = x.shape
    row = torch.arange(rows, device=c.device).reshape(rows, 1)
    column = torch.arange(columns, device=c.device).reshape(1, columns)
    found: Tensor = column - row == k
    return found.to(x.dtype if number is None else c.torch_dtype(number))


@rule("Reshape 5-25", static=(1,), folds=True)
def _reshape(c: OnnxCall) -> Tensor:
    x, shape, keeps_zero = c.tensor(0), c.ints(1), c.attr("allowzero", 0)
    wanted = [x.shape[i] if n == 0 and not keeps_zero else n for i, n in enumerate(shape)]
    if -1 in wanted and x.numel() == 0:
        rest = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = x.numel() // rest if rest else 0
    return x.reshape(wanted)


@rule("Flatten 1-25", folds=True)
def _flatten(c: OnnxCall) -> Tensor:
    x, axis = c.tensor(0), c.attr("axis")
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@rule("Squeeze 1-25", static=(1,), folds=True)
def _squeeze(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    axes = _axes(c, 13, 1, x.dim())
    axes = [i for i, n in enumerate(x.shape) if n == 1] if axes is None else axes
    if any(x.shape[i] != 1 for i in axes):
        raise ValueError(f"squeezes {tuple(x.shape)} along {axes}")
    return x.reshape([n for i, n in enumerate(x.shape) if i not in axes])


@rule("Unsqueeze 1-25", static=(1,), folds=True)
def _unsqueeze(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    given = c.attr("axes") if c.version < 13 else c.ints(1)
    rank = x.dim() + len(given)
    axes, sizes = {_axis(axis, rank) for axis in given}, iter(x.shape)
    return x.reshape([1 if i in axes else next(sizes) for i in range(rank)])


@rule("Transpose 1-25", folds=True)
def _transpose(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    return x.permute(c.attr("perm") or tuple(reversed(range(x.dim()))))


@rule("Expand 8-13", static=(1,), folds=True)
def _expand(c: OnnxCall) -> Tensor:
    x, shape = c.tensor(0), c.ints(1)
    wanted = broadcast(x.shape, tuple(shape))
    allow(c, wanted, x.dtype)
    return x.expand(wanted)


@rule("Tile 6-13", static=(1,), folds=True)
def _tile(c: OnnxCall) -> Tensor:
    x, repeats = c.tensor(0), c.ints(1)
    allow(c, [n * m for n, m in zip(x.shape, repeats, strict=True)], x.dtype)
    return x.repeat(repeats)


@rule("Concat 4-13", folds=True)
def _concat(c: OnnxCall) -> Tensor:
    return torch.cat(c.tensors(), dim=c.attr("axis"))


@rule("Split 2-18", static=(1,), folds=True)
def _split(c: OnnxCall) -> tuple[Tensor, ...]:
    x, axis, count = c.tensor(0), c.attr("axis"), len(c.node.outputs)
    axis = _axis(axis, x.dim())
    sizes = c.attr("split") if c.version < 13 else (c.ints(1) if c.has(1) else None)
    number, size = c.attr("num_outputs"), x.shape[axis]
    if number not in (None, count):
        raise c.refuse(f"it has {count} outputs, and num_outputs is {number}.")
    if sizes is None:
        part = -(-size // count)
        sizes = [max(min(part, size - i * part), 0) for i in range(count)]
    return torch.split(x, list(sizes), dim=axis)


@rule("Slice 1-13", static=(1, 2, 3, 4), folds=True)
def _slice(c: OnnxCall) -> Tensor:
    x = c.tensor(0)
    if c.version < 10:
        starts, ends, axes = c.attr("starts"), c.attr("ends"), c.attr("axes")
        steps = None
    else:
        starts, ends = c.ints(1), c.ints(2)
        axes = c.ints(3) if c.has(3) else None
        steps = c.ints(4) if c.has(4) else None
    axes = [*range(len(starts))] if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = _axis(axis, x.dim())
        x = sliced(x, axis, range(*slice(start, end, step).indices(x.shape[axis])))
    return x


def sliced(x: Tensor, axis: int, places: range) -> Tensor:
    """The places of an axis, backwards too."""
    if len(places) == 0:
        return x.narrow(axis, 0, 0)
    forward = places if places.step > 0 else places[::-1]
    index = (slice(None),) * axis + (slice(forward[0], forward[-1] + 1, forward.step),)
    x = x[index]
    return x if places.step > 0 else torch.flip(x, (axis,))


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@rule("Pad 2-25", static=(1, 3), settings=(2,), folds=True)
def _pad(c: OnnxCall) -> Tensor:
    x, mode = c.tensor(0), c.attr("mode")
    if c.version < 11:
        pads, axes = c.attr("pads"), [*range(x.dim())]
        value: Any = c.attr("value")
    else:
        pads, value = c.ints(1), c.number(2) if c.has(2) else 0
        value = c.tensor(2) if value is None else value
        axes = [_axis(a, x.dim()) for a in c.ints(3)] if c.has(3) else [*range(x.dim())]
    both = {axis: (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)}
    if mode not in _MODES:
        raise c.refuse(f"its mode is {mode!r}.")
    for axis, (before, after) in both.items():
        cut = range(max(-before, 0), x.shape[axis] - max(-after, 0))
        if len(cut) != x.shape[axis]:
            x = sliced(x, axis, cut)
        x = padded(x, axis, max(before, 0), max(after, 0), mode, value)
    return x


def padded(x: Tensor, axis: int, before: int, after: int, mode: str, value: Any) -> Tensor:
    """One axis longer; the standard's modes are defined for every rank, torch's are not."""
    if before == after == 0:
        return x
    n = x.shape[axis]
    if mode == "constant" and isinstance(value, Tensor):
        sizes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in (before, after)]
        first, last = (value.reshape([1] * x.dim()).expand(size) for size in sizes)
        return torch.cat([first, x, last], dim=axis)
    if mode == "constant":
        widths = [0, 0] * (x.dim() - 1 - axis) + [before, after]
        return F.pad(x, widths, value=value)
    places = [*range(-before, n + after)]
    if mode == "edge":
        places = [min(max(i, 0), n - 1) for i in places]
    elif mode == "wrap":
        places = [i % n for i in places]
    else:
        period = max(2 * (n - 1), 1)
        places = [min(i % period, period - i % period) for i in places]
    return torch.cat([sliced(x, axis, run) for run in _runs(places)], dim=axis)


def _runs(places: list[int]) -> list[range]:
    """Integers in order, as the ranges of step 1 or −1 that one pass finds."""
    found: list[range] = []
    for place in places:
        last = found[-1] if found else None
        if last is not None and len(last) == 1 and abs(place - last[0]) == 1:
            step = place - last[0]
            found[-1] = range(last[0], place + step, step)
        elif last is not None and len(last) > 1 and place == last.stop:
            found[-1] = range(last.start, last.stop + last.step, last.step)
        else:
            found.append(range(place, place + 1))
    return found


@rule("Trilu 14", static=(1,), folds=True)
def _trilu(c: OnnxCall) -> Tensor:
    x, k = c.tensor(0), int(c.number(1) or 0)
    return torch.triu(x, k) if c.attr("upper") else torch.tril(x, k)


@rule("CenterCropPad 18", static=(1,), folds=True)
def _center_crop_pad(c: OnnxCall) -> Tensor:
    x, shape, axes = c.tensor(0), c.ints(1), c.attr("axes")
    for axis, size in zip(axes or range(x.dim()), shape, strict=True):
        axis = _axis(axis, x.dim())
        n = x.shape[axis]
        if n > size:
            x = sliced(x, axis, range((n - size) // 2, (n - size) // 2 + size))
        x = padded(x, axis, max(size - n, 0) // 2, max(size - n, 0) - max(size - n, 0) // 2,
                   "constant", 0)  # fmt: skip
    return x


@rule("DepthToSpace 1-28")
def _depth_to_space(c: OnnxCall) -> Tensor:
    x, size, mode = c.tensor(0), c.attr("blocksize"), c.attr("mode", "DCR")
    n, depth, h, w = x.shape
    if mode == "DCR":
        x = x.reshape(n, size, size, depth // size**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, depth // size**2, size, size, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, depth // size**2, h * size, w * size)


@rule("SpaceToDepth 1-28")
def _space_to_depth(c: OnnxCall) -> Tensor:
    x, size, mode = c.tensor(0), c.attr("blocksize"), c.attr("mode", "DCR")
    n, depth, h, w = x.shape
    x = x.reshape(n, depth, h // size, size, w // size, size)
    x = x.permute((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return x.reshape(n, depth * size**2, h // size, w // size)
