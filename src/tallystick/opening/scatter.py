"""Opening rules of the scatter class: contributions in ascending source order (NUMERICS 4).

A destination is a chain over all sources. A source for another destination keeps the state. So a
stretch costs its indices and, of the sources, only the added elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tallystick.numerics.operators.common import axis_of, integer
from tallystick.opening.arithmetic import accumulated, started
from tallystick.opening.pointwise import check_inside
from tallystick.opening.quantity import (
    LIMIT,
    Array,
    Chain,
    Index,
    Local,
    Needs,
    Quantity,
    Site,
    Source,
    opening,
)


def _scatter(
    site: Site,
    count: int,
    row: int,
    rows: int,
    begin: Callable[[Source], Any],
    contributions: Callable[[Source, Index], Array],
) -> Chain:
    """d: `begin`, then the `contributions` of the sources whose index, operand 1, is `row`.

    The rule refuses an index outside of the `rows` destinations, as the kernel does (NUMERICS 4.2,
    9.2).
    """

    @np.errstate(all="ignore")
    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        if first == 0:
            state = started(begin(source), count)
        sources = np.arange(first, last, dtype=np.int64)
        index = source.read(1, sources)
        check_inside(site.op, index, rows)
        sources = sources[index == row]
        return accumulated(state, contributions(source, sources), count)

    return Chain("d", "f32", count, LIMIT, np.float32(0), advance)


@opening("aten.embedding_dense_backward")
def _embedding_backward(site: Site) -> Quantity:
    rows, width = site.outputs[0].shape
    row, column = divmod(site.element, width)
    padding = integer(site.attrs, "padding_idx")
    # Every source of the padding row is skipped (4.2).
    count = 0 if row == padding else site.type_of(1).numel

    def gradients(source: Source, sources: Index) -> Array:
        return source.read(0, sources * width + column)

    return _scatter(site, count, row, rows, lambda _: np.float32(0), gradients)


@opening("aten.index_add")
def _index_add(site: Site) -> Quantity:
    shape = site.outputs[0].shape
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(shape))
    size, inner = shape[axis], math.prod(shape[axis + 1 :])
    slice_, column = divmod(site.element, inner)
    outer, row = divmod(slice_, size)
    count = site.type_of(1).numel

    def own(source: Source) -> Any:
        return source.read(0, np.array([site.element], dtype=np.int64))[0]

    def added(source: Source, sources: Index) -> Array:
        return source.read(2, (outer * count + sources) * inner + column)

    if count == 0:  # a chain without links is its start, which is a constant
        return Local("x", "f32", lambda source, _: own(source))
    return _scatter(site, count, row, size, own, added)
