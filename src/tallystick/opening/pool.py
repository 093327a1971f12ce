"""Opening rules of max pooling and its gradient (NUMERICS 6.15, 6.16)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tallystick.numerics.operators.pool import axes
from tallystick.opening.arithmetic import accumulated, only
from tallystick.opening.pointwise import check_inside
from tallystick.opening.quantity import (
    LIMIT,
    Array,
    Chain,
    Extremum,
    Index,
    Local,
    Needs,
    Quantity,
    Site,
    Source,
    opening,
)


@opening("aten.max_pool2d_with_indices")
def _max_pool(site: Site) -> Quantity:
    x = site.type_of(0)
    high, wide = axes(site.op, site.attrs, x)
    out_height, out_width = site.outputs[0].shape[-2:]
    rest, column = divmod(site.element, out_width)
    plane, row = divmod(rest, out_height)
    rows, columns = high.taps(row), wide.taps(column)
    base, count = plane * high.size * wide.size, len(rows) * len(columns)

    def place(tap: Any) -> Any:
        """Position in the plane of taps by number; as taps ascend, so do positions (6.15).

        A number that both parties made up gives some tap, so the rule never asks for an element
        outside.
        """
        i, j = np.divmod(tap % count, len(columns))
        y, x = rows.start + i * rows.step, columns.start + j * columns.step
        return y * wide.size + x

    def element(source: Source, _: Needs, index: Index) -> Array:
        return source.read(0, base + place(index))

    winner = Extremum("tap", "i64", count, "argmax", element)
    if site.out == 1:
        return Local("index", "i64", lambda _, needs: np.int64(place(needs[0])), (winner,))

    def value(source: Source, needs: Needs) -> Array:
        at = np.array([base + place(needs[0])], dtype=np.int64)
        return only(source.read(0, at))

    return Local("y", "f32", value, (winner,))


@opening("aten.max_pool2d_with_indices_backward")
def _max_pool_backward(site: Site) -> Quantity:
    """A chain over the plane's gradients. A gradient for another element keeps the state."""
    size = math.prod(site.type_of(1).shape[-2:])
    sources = math.prod(site.type_of(0).shape[-2:])
    plane, place = divmod(site.element, size)
    base = plane * sources

    @np.errstate(all="ignore")
    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        at = np.arange(base + first, base + last, dtype=np.int64)
        index = source.read(2, at)
        check_inside(site.op, index, size)
        return accumulated(state, source.read(0, at[index == place]), sources)

    return Chain("d", "f32", sources, LIMIT, np.float32(0), advance)
