"""Which elements of its operands an output element is made of, by their row-major positions: one of
each, broadcast (NUMERICS 10.1), or all that a reduction makes one of (3.3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tallystick.numerics.operators.reduction import reduced_axes
from tallystick.numerics.types import TensorType
from tallystick.opening.quantity import Array, Index, RefusedOperandsError, Site, Source


def coordinates(element: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major position `element` as one coordinate per axis."""
    found = []
    for size in reversed(shape):
        element, at = divmod(element, size)
        found.append(at)
    return tuple(reversed(found))


def position(at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Row-major position of coordinates `at`."""
    flat = 0
    for size, here in zip(shape, at, strict=True):
        flat = flat * size + here
    return flat


def broadcast_position(element: int, out: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The position of element `element` of shape `out` in an operand broadcast from `shape`."""
    at = coordinates(element, out)[len(out) - len(shape) :]
    return position(tuple(0 if n == 1 else k for k, n in zip(at, shape, strict=True)), shape)


def one(source: Source, operand: int, flat: int) -> Array:
    """One element of an operand as an array of shape (1,)."""
    return source.read(operand, np.array([flat], dtype=np.int64))


def check_inside(op: str, index: Array, size: int, what: str = "index") -> None:
    """The indices are in [0, size), as the kernels check (NUMERICS 1.13).

    Raises RefusedOperandsError.
    """
    outside = (index < 0) | (index >= size)
    if outside.any():
        raise RefusedOperandsError(op, f"{what} {index[outside][0]} is outside [0, {size}).")


def operand_of(site: Site, source: Source, number_: int, type_: TensorType) -> Array:
    """The operand's element that goes into the site's element, broadcast (NUMERICS 10.1)."""
    flat = broadcast_position(site.element, site.outputs[site.out].shape, type_.shape)
    read = one(source, number_, flat)
    return read if type_.shape else read.reshape(())


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
