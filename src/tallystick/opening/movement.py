"""Opening rules of operators that move, choose or make data (NUMERICS 9): bits are unchanged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallystick.numerics.operators.common import axis_of, constant, integer, integers, number
from tallystick.numerics.types import DTYPES
from tallystick.opening.pointwise import (
    broadcast_position,
    check_inside,
    coordinates,
    one,
    position,
)
from tallystick.opening.quantity import (
    LIMIT,
    Chain,
    Local,
    Needs,
    Quantity,
    Site,
    Source,
    opening,
)

At = tuple[int, ...]


def _moved(site: Site, operand: int, flat: int) -> Quantity:
    """The element is one known element of one operand."""

    def compute(source: Source, _: Needs) -> Any:
        return one(source, operand, flat)[0]

    return Local("out", site.outputs[0].dtype, compute)


def _here(site: Site) -> At:
    return coordinates(site.element, site.outputs[0].shape)


def _with(at: At, axis: int, value: int) -> At:
    return (*at[:axis], value, *at[axis + 1 :])


@opening("aten.view")
def _view(site: Site) -> Quantity:
    return _moved(site, 0, site.element)


@opening("aten.permute")
def _permute(site: Site) -> Quantity:
    at = [0] * len(_here(site))
    for here, dim in zip(_here(site), integers(site.attrs, "dims"), strict=True):
        at[dim] = here
    return _moved(site, 0, position(tuple(at), site.type_of(0).shape))


@opening("aten.expand")
def _expand(site: Site) -> Quantity:
    flat = broadcast_position(site.element, site.outputs[0].shape, site.type_of(0).shape)
    return _moved(site, 0, flat)


def _range(site: Site) -> tuple[int, int, int, int]:
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(site.type_of(0).shape))
    start, end, step = (integer(site.attrs, k) for k in ("start", "end", "step"))
    return axis, start, end, step


@opening("aten.slice")
def _slice(site: Site) -> Quantity:
    axis, start, _, step = _range(site)
    at = _here(site)
    from_ = _with(at, axis, start + at[axis] * step)
    return _moved(site, 0, position(from_, site.type_of(0).shape))


@opening("aten.slice_scatter")
def _slice_scatter(site: Site) -> Quantity:
    axis, start, end, step = _range(site)
    at = _here(site)
    inside = start <= at[axis] < end and (at[axis] - start) % step == 0
    if not inside:
        return _moved(site, 0, site.element)
    from_ = _with(at, axis, (at[axis] - start) // step)
    return _moved(site, 1, position(from_, site.type_of(1).shape))


@opening("aten.cat")
def _cat(site: Site) -> Quantity:
    at = _here(site)
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(at))
    operand, before = 0, 0
    while at[axis] >= before + site.type_of(operand).shape[axis]:
        before += site.type_of(operand).shape[axis]
        operand += 1
    from_ = _with(at, axis, at[axis] - before)
    return _moved(site, operand, position(from_, site.type_of(operand).shape))


def _indexed(site: Site, index_at: int, size: int, place: Any) -> Quantity:
    """The element of operand 0 at place(i), where i is element `index_at` of operand 1."""

    def compute(source: Source, _: Needs) -> Any:
        index = one(source, 1, index_at)
        check_inside(site.op, index, size)
        return one(source, 0, place(int(index[0])))[0]

    return Local("out", site.outputs[0].dtype, compute)


@opening("aten.gather")
def _gather(site: Site) -> Quantity:
    at, shape = _here(site), site.type_of(0).shape
    if not shape:
        return _indexed(site, site.element, 1, lambda i: 0)
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(shape))
    return _indexed(site, site.element, shape[axis], lambda i: position(_with(at, axis, i), shape))


@opening("aten.index_select")
def _index_select(site: Site) -> Quantity:
    at, shape = _here(site), site.type_of(0).shape
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(shape))
    return _indexed(site, at[axis], shape[axis], lambda i: position(_with(at, axis, i), shape))


@opening("aten.embedding")
def _embedding(site: Site) -> Quantity:
    rows, width = site.type_of(0).shape
    token, column = divmod(site.element, width)
    return _indexed(site, token, rows, lambda i: i * width + column)


@opening("aten.scatter.src")
def _scatter(site: Site) -> Quantity:
    """9.3 as a chain: link 0 is x's element, link 1 + i source i along dim."""
    at, shape = _here(site), site.type_of(1).shape
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(at))
    size, row = (site.outputs[0].shape[axis], at[axis]) if at else (1, 0)
    reached = all(at[i] < n for i, n in enumerate(shape) if i != axis)
    count = (shape[axis] if shape else 1) if reached else 0
    dtype = site.outputs[0].dtype
    zero: Any = np.zeros((), DTYPES[dtype])[()]
    start = position(_with(at, axis, 0), shape) if at and count else 0
    step = math.prod(shape[axis + 1 :])

    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        if first == 0:
            state = one(source, 0, site.element)[0]
        places = start + np.arange(max(first, 1) - 1, last - 1, dtype=np.int64) * step
        index = source.read(1, places)
        check_inside(site.op, index, size)
        here = places[index == row]
        return source.read(2, here[-1:])[0] if here.size else state

    return Chain("out", dtype, 1 + count, LIMIT, zero, advance)


@opening("aten.where")
def _where(site: Site) -> Quantity:
    out = site.outputs[0].shape
    flats = [broadcast_position(site.element, out, site.type_of(k).shape) for k in range(3)]

    def compute(source: Source, _: Needs) -> Any:
        chosen = 1 if one(source, 0, flats[0])[0] else 2
        return one(source, chosen, flats[chosen])[0]

    return Local("out", site.outputs[0].dtype, compute)


@opening("aten.masked_fill")
def _masked_fill(site: Site) -> Quantity:
    type_ = site.outputs[0]
    mask_at = broadcast_position(site.element, type_.shape, site.type_of(1).shape)
    fill = constant(site.op, "value", number(site.attrs, "value"), type_.dtype)

    def compute(source: Source, _: Needs) -> Any:
        return fill if one(source, 1, mask_at)[0] else one(source, 0, site.element)[0]

    return Local("out", type_.dtype, compute)


@opening("aten.full")
def _full(site: Site) -> Quantity:
    dtype = site.outputs[0].dtype
    value = constant(site.op, "value", number(site.attrs, "value"), dtype)
    return Local("out", dtype, lambda source, needs: value)


@opening("aten.arange")
def _arange(site: Site) -> Quantity:
    """NUMERICS 9.1."""
    dtype = site.outputs[0].dtype
    start, step = number(site.attrs, "start"), number(site.attrs, "step")
    value: int | np.float32
    if dtype == "i64":
        value = int(start) + site.element * int(step)
    else:
        with np.errstate(over="ignore"):
            value = np.float32(np.float64(site.element) * step + start)
    return Local("out", dtype, lambda source, needs: value)


@opening("aten.tril", "aten.triu")
def _triangle(site: Site) -> Quantity:
    row, column = _here(site)[-2:]
    diagonal = integer(site.attrs, "diagonal")
    lower = site.op == "aten.tril"
    kept = column - row <= diagonal if lower else column - row >= diagonal
    if kept:
        return _moved(site, 0, site.element)
    zero = np.zeros((), DTYPES[site.outputs[0].dtype])[()]
    return Local("out", site.outputs[0].dtype, lambda source, needs: zero)
