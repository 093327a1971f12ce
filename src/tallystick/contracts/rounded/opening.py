"""Opening rules of the rounded operators: an exact sum, rounded once (NUMERICS 13, 14).

The terms are those of the operator's rule under `ordered/1`. Their exact sum is a chain of chunks,
and the chain's state is the accumulator record. A referee adds one chunk. Under a contract that
keeps a log, the bound of 14.4 is made of sums that are quantities too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tallystick.contracts.rounded.accumulators import (
    EMPTY,
    add_products,
    add_terms,
    parts,
    rounded,
)
from tallystick.numerics.contracts import parse_contract
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
    CHUNK,
    Array,
    Chain,
    Index,
    Local,
    Logged,
    Needs,
    Quantity,
    Site,
    Source,
    Tree,
)

# The terms that a prover gathers at once; the number bounds working memory.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class RealSum:
    """v* of an element (NUMERICS 13.3): the terms of a sum, and the operations after R(v*)."""

    summed: Summed

    @property
    def terms(self) -> Products | Tree:
        """The terms, without the last one of a DOT."""
        return self.summed.terms

    @property
    def is_all(self) -> bool:
        """True if R(v*) is the element: what is added to a DOT is its last term."""
        return self.summed.after is None or self.summed.last is not None

    @property
    def count(self) -> int:
        """K of NUMERICS 14.4."""
        return self.terms.count + (self.summed.last is not None)

    def last_value(self, source: Source) -> Array:
        """The last term, as an array of one binary32 or none."""
        last = self.summed.last
        return np.zeros(0, np.float32) if last is None else last(source)

    def finished(self, source: Source, value: np.float32) -> Any:
        """The element, given R(v*) or the entry's value (NUMERICS 13.3, 14.5)."""
        return value if self.is_all else self.summed.element(source, value)


def real_sum(site: Site) -> RealSum:
    """v* of an element of a rounded operator (NUMERICS 13.1)."""
    return RealSum(summed(site))


def _exact(real: RealSum) -> Chain:
    """v* as an accumulator record: a link adds 128 terms."""
    terms = real.terms

    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        end = min(last * CHUNK, real.count)
        for at in range(first * CHUNK, min(end, terms.count), _AT_ONCE):
            index = np.arange(at, min(at + _AT_ONCE, end, terms.count), dtype=np.int64)
            if isinstance(terms, Products):
                state = add_products(state, *terms.factors(source, index))
            else:
                state = add_terms(state, terms.terms(source, (), index))
        if end > terms.count:
            state = add_terms(state, real.last_value(source))
        return state

    links = -(-real.count // CHUNK)
    return Chain("exact sum", "acc", links, 1, EMPTY, advance, weight=CHUNK)


def _bounds(real: RealSum) -> tuple[Tree, ...]:
    """The sums in E (NUMERICS 14.4)."""
    terms = real.terms
    if isinstance(terms, Tree):
        values = terms.terms

        def magnitudes(source: Source, _: Needs, index: Index) -> Array:
            return np.abs(values(source, (), index)).astype(np.float64)

        return (Tree("SUM64(|x|)", "f64", terms.count, magnitudes),)

    def squares(side: int) -> Callable[[Source, Needs, Index], Array]:
        @np.errstate(all="ignore")
        def of(source: Source, _: Needs, index: Index) -> Array:
            factor = terms.factors(source, index)[side].astype(np.float64)
            return cast(Array, factor * factor)

        return of

    return tuple(
        Tree(f"SUM64({name}*{name})", "f64", terms.count, squares(side))
        for side, name in enumerate("ab")
    )


def _bound(real: RealSum, source: Source, sums: Needs) -> float:
    """E, given the values of `_bounds` (NUMERICS 14.4)."""
    try:
        if isinstance(real.terms, Tree):
            bound = bound_of_sum(real.count, float(sums[0]))
        else:
            last = real.last_value(source)
            given = float(last[0]) if last.size else None
            bound = bound_of_products(real.count, float(sums[0]), float(sums[1]), given)
    except ValueError:  # the root of a negative number
        bound = math.nan
    # Two liars may agree on sums that finite terms cannot have: then V holds every value.
    return bound if 0 <= bound < math.inf else sys.float_info.max


def rounded_rule(site: Site) -> Quantity | None:
    """The quantity of an element of a rounded operator, None where the rule is `ordered/1`'s."""
    contract = parse_contract(site.contract)
    rounds = site.op in contract.rounded_operators
    if not rounds or site.outputs[site.out].dtype != "f32":
        return None
    bits = contract.bits
    real, grid = real_sum(site), Grid(bits)
    chain = _exact(real)
    if not contract.keeps_log:

        def compute(source: Source, needs: Needs) -> Any:
            return real.finished(source, rounded(needs[0], bits))

        return Local("R(exact sum)", "f32", compute, (chain,))

    def doubtful(source: Source, needs: Needs) -> Doubt | None:
        exact, flags = parts(needs[0])
        return None if flags else doubt(grid, exact, _bound(real, source, needs[1:]))

    def chosen(source: Source, needs: Needs, entry: int | None) -> Any:
        found = doubtful(source, needs)
        if found is None:
            return real.finished(source, rounded(needs[0], bits))
        return real.finished(source, grid.value(found.value(entry)))

    def reach(source: Source, needs: Needs) -> Reach | None:
        # With a step after R, x is not a sum of terms (NUMERICS 14.10).
        found = doubtful(source, needs) if real.is_all else None
        return None if found is None else found.reach

    needs: tuple[Quantity, ...] = (chain, *_bounds(real))
    return Logged("R(exact sum)", "f32", chosen, doubtful, reach, needs)
