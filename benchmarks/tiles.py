"""Sampled tiles of a node's outputs, each recomputed alone: the parts of operands for them.

A tile is a part of every operand. The operator, run on the parts, must give exactly the matching
part of its outputs. So sums are never cut (NUMERICS 2, 3, 4: an output's bits depend on its own
terms in their own order, not on its neighbours).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tallystick.numerics.types import Attrs

Array = np.ndarray
Operands = Sequence[Array | None]
Index = tuple[slice, ...]
# Whole outputs up to this many elements are recomputed where an operator has no tiles.
WHOLE = 1 << 26
_ALL = slice(None)


@dataclass
class Tile:
    """Attributes and operands to run, and the parts of the outputs they must equal."""

    attrs: Attrs
    inputs: list[Array | None]
    expected: list[Array]


@dataclass
class Sampler:
    """The choice of tiles: `count` of them for every node, from `rng`."""

    rng: np.random.Generator
    count: int = 8


Rule = Callable[[Attrs, Operands, Sequence[Array], Sampler], Iterator[Tile]]


def _spans(size: int, most: int, sampler: Sampler) -> list[slice]:
    """Ranges of at most `most`: the first, the last, others anywhere."""
    length = min(size, most)
    anywhere = sampler.rng.integers(0, size - length + 1, max(0, sampler.count - 2))
    starts = [0, size - length, *(int(s) for s in anywhere)]
    return [slice(s, s + length) for s in starts[: sampler.count]]


def boxes(shape: tuple[int, ...], sampler: Sampler) -> list[Index]:
    """Boxes inside `shape`, both corners among them; odd widths leave every vector a tail."""
    columns = [
        _spans(n, 67 if axis == len(shape) - 1 else 3, sampler) for axis, n in enumerate(shape)
    ]
    return [tuple(axis[i] for axis in columns) for i in range(sampler.count)]


def _cut(x: Array | None, box: Index) -> Array | None:
    """The part of `x` that broadcasts to `box` of the result."""
    if x is None or x.ndim == 0:
        return x
    own = box[len(box) - x.ndim :]
    return x[tuple(_ALL if n == 1 else s for n, s in zip(x.shape, own, strict=True))]


def _elementwise(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    for box in boxes(outputs[0].shape, sampler):
        yield Tile(attrs, [_cut(x, box) for x in inputs], [out[box] for out in outputs])


def _optimizer(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    shape = outputs[0].shape
    for box in boxes(shape, sampler):
        cut = [x if x is None or x.shape != shape else x[box] for x in inputs]
        yield Tile(attrs, cut, [out[box] for out in outputs])


def _product(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    """mm, addmm and bmm: some rows times some columns over the whole inner axis."""
    *added, a, b = inputs
    assert a is not None and b is not None
    for box in boxes(outputs[0].shape, sampler):
        *batch, rows, columns = box
        cut = [_cut(x, box) for x in added]
        left, right = (*batch, rows), (*batch, _ALL, columns)
        yield Tile(attrs, [*cut, a[left], b[right]], [outputs[0][box]])


def _sum(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    (x,), dims, keep = inputs, attrs["dim"], attrs["keepdim"]
    assert x is not None and isinstance(dims, tuple)
    reduced = {int(d) % x.ndim for d in dims} or set(range(x.ndim))
    for box in boxes(x.shape, sampler):
        cut = tuple(_ALL if axis in reduced else s for axis, s in enumerate(box))
        kept = cut if keep else tuple(s for axis, s in enumerate(cut) if axis not in reduced)
        yield Tile(attrs, [x[cut]], [outputs[0][kept]])


def _along(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    """softmax and its gradient: whole rows along `dim`."""
    shape, dim = outputs[0].shape, attrs["dim"]
    assert isinstance(dim, int)
    for box in boxes(shape, sampler):
        rows = tuple(_ALL if axis == dim % len(shape) else s for axis, s in enumerate(box))
        yield Tile(attrs, [x if x is None else x[rows] for x in inputs], [outputs[0][rows]])


def _normalized(attrs: Attrs) -> tuple[int, ...]:
    shape = attrs["normalized_shape"]
    assert isinstance(shape, tuple)
    return tuple(int(n) for n in shape)


def _layer_norm(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    lead = outputs[0].ndim - len(_normalized(attrs))
    for box in boxes(outputs[0].shape, sampler):
        rows = box[:lead]
        x, *affine = inputs
        assert x is not None
        yield Tile(attrs, [x[rows], *affine], [out[rows] for out in outputs])


def _layer_norm_backward(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    """The input's gradient by rows, weight's and bias's by columns over all rows."""
    g, x, mean, rstd, *affine = inputs
    assert g is not None and x is not None and mean is not None and rstd is not None
    mask = attrs["output_mask"]
    assert isinstance(mask, tuple)
    of = iter(outputs)
    dx, dw, db = (next(of) if on else None for on in mask)
    width = len(_normalized(attrs))
    lead = x.ndim - width
    for box in boxes(x.shape, sampler):
        if dx is not None:
            rows, only = box[:lead], {**attrs, "output_mask": (True, False, False)}
            cut = [g[rows], x[rows], mean[rows], rstd[rows], *affine]
            yield Tile(only, cut, [dx[rows]])
        wanted = [out for out in (dw, db) if out is not None]
        if wanted and width == 1:
            columns = box[-1]
            count = x[..., columns].shape[-1]
            only = {
                **attrs,
                "output_mask": (False, dw is not None, db is not None),
                "normalized_shape": (count,),
            }
            cut = [g[..., columns], x[..., columns], mean, rstd]
            cut += [None if p is None else p[columns] for p in affine]
            yield Tile(only, cut, [out[columns] for out in wanted])
    if dw is not None and width != 1:
        yield Tile(attrs, list(inputs), list(outputs))


def _embedding(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    weight, index = inputs
    assert weight is not None and index is not None
    for box in boxes(index.shape, sampler):
        yield Tile(attrs, [weight, index[box]], [outputs[0][box]])


def _embedding_backward(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    """Every destination, in some columns."""
    grad, index = inputs
    assert grad is not None
    for _, columns in boxes(outputs[0].shape, sampler):
        yield Tile(attrs, [grad[..., columns], index], [outputs[0][:, columns]])


def _whole(
    attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    if sum(out.size for out in outputs) > WHOLE:
        raise ValueError(f"{[out.shape for out in outputs]} is too large to recompute whole")
    yield Tile(attrs, list(inputs), list(outputs))


RULES: dict[str, Rule] = {
    "aten.mm": _product,
    "aten.addmm": _product,
    "aten.bmm": _product,
    "aten.sum.dim_IntList": _sum,
    "aten.mean.dim": _sum,
    "aten._softmax": _along,
    "aten._log_softmax": _along,
    "aten._softmax_backward_data": _along,
    "aten._log_softmax_backward_data": _along,
    "aten.native_layer_norm": _layer_norm,
    "aten.native_layer_norm_backward": _layer_norm_backward,
    "aten.embedding": _embedding,
    "aten.embedding_dense_backward": _embedding_backward,
    "tallystick.adamw_step": _optimizer,
    "tallystick.adam_step": _optimizer,
    "tallystick.sgd_step": _optimizer,
    **dict.fromkeys(
        (
            "aten.add.Tensor",
            "aten.sub.Tensor",
            "aten.mul.Tensor",
            "aten.mul.Scalar",
            "aten.masked_fill",
            "aten.gelu",
            "aten.gelu_backward",
            "tallystick.mask_scale",
        ),
        _elementwise,
    ),
}


def tiles(
    op: str, attrs: Attrs, inputs: Operands, outputs: Sequence[Array], sampler: Sampler
) -> Iterator[Tile]:
    """Tiles of a node of operator `op`; the whole node where no rule cuts it.

    Raises ValueError for a node without a rule that is too large to recompute.
    """
    if math.prod(outputs[0].shape) == 0:
        return _whole(attrs, inputs, outputs, sampler)
    return RULES.get(op, _whole)(attrs, inputs, outputs, sampler)
