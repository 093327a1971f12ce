"""The elements of an operand that a reduction makes one element of (NUMERICS 3.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.opening.quantity import Index, Site


@dataclass(frozen=True)
class Reduced:
    """The elements of operand 0 that go into one output element, as one index (NUMERICS 3.3).

    `axes` are (size, stride) of the reduced axes, neighbours merged, outermost first.
    """

    base: int
    count: int
    axes: tuple[tuple[int, int], ...]

    def places(self, index: Index) -> Index:
        """Their row-major positions in the operand."""
        flat = np.full(index.shape, self.base, dtype=np.int64)
        for size, stride in reversed(self.axes):
            flat += index % size * stride
            index = index // size
        return flat


def reduced(site: Site) -> Reduced:
    """Those of the site's element."""
    shape = site.type_of(0).shape
    axes = reduced_axes(site.op, site.attrs, len(shape))
    base, rest, merged = 0, site.element, list[tuple[int, int]]()
    for axis in reversed(range(len(shape))):
        size, stride = shape[axis], math.prod(shape[axis + 1 :])
        if axis not in axes:
            rest, coordinate = divmod(rest, size)
            base += coordinate * stride
        elif merged and merged[0][0] * merged[0][1] == stride:
            merged[0] = (size * merged[0][0], merged[0][1])
        else:
            merged.insert(0, (size, stride))
    return Reduced(base, math.prod(shape[a] for a in axes), tuple(merged))
