"""Operands whose products lie near boundaries, and engines that add in another legal order."""

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


class Reordered:
    """Adds the terms permuted and in `parts` partial sums: admissible (NUMERICS 14.3)."""

    def __init__(self, seed: int, parts: int) -> None:
        self.name = f"reordered-{seed}-{parts}"
        self._seed = seed
        self._parts = parts

    def _split(self, terms: int) -> list[Array]:
        order = np.random.default_rng((self._seed, terms)).permutation(terms)
        return np.array_split(order, max(1, min(self._parts, terms)))

    def mm(self, a: Array, b: Array, out: Array) -> None:
        out[...] = 0
        for part in self._split(a.shape[-1]):
            out += a[..., part] @ b[..., part, :]

    def sums(self, x: Array) -> Array:
        total = np.zeros(x.shape[0])
        for part in self._split(x.shape[1]):
            total += x[:, part].sum(axis=1)
        return total


class LeftToRight:
    """Adds the terms one after the other."""

    name = "left-to-right"

    def mm(self, a: Array, b: Array, out: Array) -> None:
        out[...] = 0
        for k in range(a.shape[-1]):
            out += a[..., :, k : k + 1] * b[..., k : k + 1, :]

    def sums(self, x: Array) -> Array:
        total = np.zeros(x.shape[0])
        for k in range(x.shape[1]):
            total += x[:, k]
        return total


class Perturbed:
    """Results that err by nearly all that the bound of NUMERICS 14.4 allows, in both directions:
    no kernel is so bad, but 14.5 to 14.7 hold for it. The start-up probe rightly refuses it."""

    def __init__(self, seed: int) -> None:
        self.name = f"perturbed-{seed}"
        self._rng = np.random.default_rng(seed)

    def _error(self, bound: Array) -> Array:
        size = self._rng.choice((-0.98, -0.7, 0.0, 0.3, 0.98), bound.shape)
        error: Array = bound * size
        return error

    def mm(self, a: Array, b: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            norms = (
                np.linalg.norm(a, axis=-1)[..., :, None],
                np.linalg.norm(b, axis=-2)[..., None, :],
            )
            bound = a.shape[-1] * 2.0**-53 * norms[0] * norms[1]
            out[...] = a @ b + self._error(bound)

    def sums(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            bound = x.shape[1] * 2.0**-53 * np.abs(x).sum(axis=1)
            total: Array = x.sum(axis=1) + self._error(bound)
        return total
