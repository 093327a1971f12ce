"""Opening rule of places in a row's order: a count of comparisons (NUMERICS 3.9)."""

from __future__ import annotations

import math

import numpy as np

from tallystick.numerics.operators.common import axis_of, flag, integer
from tallystick.opening.pointwise import one
from tallystick.opening.quantity import (
    Array,
    Index,
    Needs,
    Quantity,
    Site,
    Source,
    Tree,
    opening,
)


def _smaller(a: Array, b: Array) -> Array:
    """Whether a is smaller than b; NaN is larger than every number."""
    if a.dtype.kind != "f":
        return np.asarray(a < b)
    return np.asarray((a < b) | (np.isnan(b) & ~np.isnan(a)))


@opening("tallystick.rank")
def _rank(site: Site) -> Quantity:
    shape = site.outputs[0].shape
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(shape))
    size, inner = (shape[axis], math.prod(shape[axis + 1 :])) if shape else (1, 1)
    row, column = divmod(site.element, inner)
    own = row % size
    first = (row - own) * inner + column
    down = flag(site.attrs, "descending")

    def before(source: Source, _: Needs, index: Index) -> Array:
        x = one(source, 0, site.element)
        other = source.read(0, first + index * inner)
        earlier, later = (_smaller(x, other), _smaller(other, x))
        if not down:
            earlier, later = later, earlier
        return np.asarray(earlier | (~later & (index < own))).astype(np.int64)

    return Tree("place", "i64", size, before)
