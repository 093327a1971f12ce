"""Operands whose products lie near boundaries of the grid."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def near_boundaries(
    rows: int, terms: int, columns: int, seed: int, bits: int
) -> tuple[Array, Array]:
    """A f32[rows,terms], B f32[terms,columns] with true products on, and beside, boundaries.

    Large terms cancel in pairs that lie anywhere in the index, so that orders of addition leave
    different rests; what is left of a row are an element of the grid, half of the way to the
    next one, and a term so small that the rests decide on which side of the boundary a sum is.
    Some rows have no pairs, plain ties, underflow, or sums about the overflow boundary.
    """
    rng = np.random.default_rng(seed)
    place = rng.permutation(terms)
    half = (terms - 3) // 2
    first, second, rest = place[:half], place[half : 2 * half], place[2 * half :]
    a, b = rng.standard_normal((rows, terms)), rng.standard_normal((terms, columns))
    b[second] = b[first]
    a[:, second] = -a[:, first]
    a[:, rest] = 0
    step = 2.0 ** (32 - bits - 23)  # of the grid, at 1
    for row, kind in enumerate(rng.integers(0, 9, rows)):
        size = 2.0 ** rng.integers(bits - 53, -4)  # the smallest steps are about E
        whole = (1 + np.floor(rng.random() / step) * step) * size
        sign = rng.choice((-1.0, 1.0))
        tiny = rng.choice((0.0, *2.0 ** np.arange(-58.0, -38.0))) * rng.choice((-1.0, 1.0))
        left = [sign * whole, rng.choice((-1, 1)) * step * size / 2, tiny]
        if kind == 0:  # no pairs: ties and their neighbours
            a[row] = 0
        elif kind == 1:  # about the largest values
            a[row] = 0
            left = [sign * (2 - step) * 2.0**127, sign * step * 2.0**126, tiny * 2.0**120]
        elif kind == 2:  # underflow: the columns' scale does the rest
            a[row] *= 2.0**-60
            left = [value * 2.0**-60 for value in left]
        elif kind == 3:  # nothing cancels
            a[row] = rng.standard_normal(terms)
            continue
        a[row, rest[:3]] = left
    b[rest] = np.exp2(rng.integers(-2, 3, columns))
    b[:, ::4] *= 2.0**-75
    b[rest, 1::4] = 1.0
    return a.astype(np.float32), b.astype(np.float32)
