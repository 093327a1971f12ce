"""The opening rule of an element that a bounded log may round (NUMERICS 14.4 to 14.7).

The exact sum is that of `rounded/1`. The sums that bound a kernel's error are quantities too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tallystick.contracts.rounded.accumulators import parts, rounded
from tallystick.contracts.rounded.opening import count_of, exact_chain, finished, is_sum
from tallystick.numerics.grid import (
    Doubt,
    Grid,
    Reach,
    bound_of_products,
    bound_of_sum,
    doubt,
)
from tallystick.opening.dot import Products, Summed
from tallystick.opening.parts import summed
from tallystick.opening.quantity import (
    Array,
    Index,
    Logged,
    Needs,
    Quantity,
    Site,
    Source,
    TreeQuantity,
)


def _bounds(terms: Products | TreeQuantity) -> tuple[TreeQuantity, ...]:
    """The sums in E (NUMERICS 14.4)."""
    if isinstance(terms, TreeQuantity):
        values = terms.terms

        def magnitudes(source: Source, _: Needs, index: Index) -> Array:
            return np.abs(values(source, (), index)).astype(np.float64)

        return (TreeQuantity("SUM64(|x|)", "f64", terms.count, magnitudes),)

    def squares(side: int) -> Callable[[Source, Needs, Index], Array]:
        @np.errstate(all="ignore")
        def of(source: Source, _: Needs, index: Index) -> Array:
            factor = terms.factors(source, index)[side].astype(np.float64)
            return cast(Array, factor * factor)

        return of

    return tuple(
        TreeQuantity(f"SUM64({name}*{name})", "f64", terms.count, squares(side))
        for side, name in enumerate("ab")
    )


def _bound(x: Summed, source: Source, sums: Needs) -> float:
    """E, given the values of `_bounds` (NUMERICS 14.4)."""
    try:
        if isinstance(x.terms, TreeQuantity):
            bound = bound_of_sum(count_of(x), float(sums[0]))
        else:
            last = None if x.last is None else float(x.last(source)[0])
            bound = bound_of_products(count_of(x), float(sums[0]), float(sums[1]), last)
    except ValueError:  # the root of a negative number
        bound = math.nan
    # Two liars may agree on sums that finite terms cannot have: then V holds every value.
    return bound if 0 <= bound < math.inf else sys.float_info.max


def logged_rule(site: Site, bits: int) -> Logged:
    """The quantity of an f32 element of a rounded operator on the grid of B = `bits`, given its
    party's entry."""
    element, grid = summed(site), Grid(bits)

    def doubtful(source: Source, needs: Needs) -> Doubt | None:
        exact, flags = parts(needs[0])
        return None if flags else doubt(grid, exact, _bound(element, source, needs[1:]))

    def chosen(source: Source, needs: Needs, entry: int | None) -> Any:
        found = doubtful(source, needs)
        if found is None:
            return finished(element, rounded(needs[0], bits), source)
        return finished(element, grid.value(found.value(entry)), source)

    def reach(source: Source, needs: Needs) -> Reach | None:
        # With a step after R, x is not a sum of terms (NUMERICS 14.10).
        found = doubtful(source, needs) if is_sum(element) else None
        return None if found is None else found.reach

    needs: tuple[Quantity, ...] = (exact_chain(element), *_bounds(element.terms))
    return Logged("R(exact sum)", "f32", chosen, doubtful, reach, needs)
