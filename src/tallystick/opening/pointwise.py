"""Opening rules of operators whose output element needs one element of each operand.

They are those with forms: elementwise operators, gelu, and the optimizers' updates (NUMERICS 6,
8.5, 10, 11). The rule computes the form's values on one element, and calls no kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.kernels.elements import element_values
from tallystick.kernels.loops import names_of
from tallystick.numerics.registry import OpSpec, lookup
from tallystick.numerics.types import TensorType
from tallystick.opening.quantity import (
    Array,
    Local,
    Needs,
    Quantity,
    RefusedOperandsError,
    Site,
    Source,
)


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


def pointwise_rule(site: Site) -> Quantity:
    """The element of an operator with forms."""
    spec = lookup(site.op)

    def compute(source: Source, _: Needs) -> Any:
        given, sizes = operands_of(site, source), sizes_of(site, spec)
        made = element_values(spec, site.attrs, given, sizes)  # raises RefusedOperandsError
        return made[site.out].reshape(-1)[0]

    return Local("out", site.outputs[site.out].dtype, compute)


def operands_of(site: Site, source: Source) -> list[Any]:
    """The operands' elements that go into the site's element; None for an absent operand."""
    return [
        None if type_ is None else operand_of(site, source, k, type_)
        for k, type_ in enumerate(site.inputs)
    ]


def sizes_of(site: Site, spec: OpSpec) -> dict[str, int]:
    """The whole operands' numbers of elements, by name."""
    return {
        name: type_.numel
        for name, type_ in zip(names_of(spec), site.inputs, strict=False)
        if type_ is not None
    }
