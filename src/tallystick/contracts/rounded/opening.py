"""Opening rules of the rounded operators: an exact sum, rounded once (NUMERICS 13, 14).

The terms are those of the operator's rule under `ordered/1`. Their exact sum is a chain of chunks,
and the chain's state is the accumulator record. A referee adds one chunk. Under a contract that
keeps a log, the bound of 14.4 is made of sums that are quantities too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
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


def is_sum(x: Summed) -> bool:
    """True if the element is R(v*): what is added to a DOT is its last term (NUMERICS 13.3)."""
    return x.after is None or x.last is not None


def count_of(x: Summed) -> int:
    """K of NUMERICS 14.4: the number of terms, with the last one of a DOT."""
    return x.terms.count + (x.last is not None)


def _finished(x: Summed, value: np.float32, source: Source) -> Any:
    """The element, given R(v*) or the entry's value (NUMERICS 13.3, 14.5)."""
    return value if is_sum(x) else x.made_of(value, source)


def _exact(x: Summed) -> Chain:
    """v* as an accumulator record: a link adds 128 terms."""
    terms, count = x.terms, count_of(x)

    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        end = min(last * CHUNK, count)
        for at in range(first * CHUNK, min(end, terms.count), _AT_ONCE):
            index = np.arange(at, min(at + _AT_ONCE, end, terms.count), dtype=np.int64)
            if isinstance(terms, Products):
                state = add_products(state, *terms.factors(source, index))
            else:
                state = add_terms(state, terms.terms(source, (), index))
        if x.last is not None and end == count:
            state = add_terms(state, x.last(source))
        return state

    return Chain("exact sum", "acc", -(-count // CHUNK), 1, EMPTY, advance, weight=CHUNK)


def _bounds(terms: Products | Tree) -> tuple[Tree, ...]:
    """The sums in E (NUMERICS 14.4)."""
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


def _bound(x: Summed, source: Source, sums: Needs) -> float:
    """E, given the values of `_bounds` (NUMERICS 14.4)."""
    try:
        if isinstance(x.terms, Tree):
            bound = bound_of_sum(count_of(x), float(sums[0]))
        else:
            last = None if x.last is None else float(x.last(source)[0])
            bound = bound_of_products(count_of(x), float(sums[0]), float(sums[1]), last)
    except ValueError:  # the root of a negative number
        bound = math.nan
    # Two liars may agree on sums that finite terms cannot have: then V holds every value.
    return bound if 0 <= bound < math.inf else sys.float_info.max


def rounded_rule(site: Site) -> Quantity | None:
    """The quantity of an element of a rounded operator, None where the rule is `ordered/1`'s."""
    contract = parse_contract(site.contract)
    rounds = site.op in contract.own_operators
    if not rounds or site.outputs[site.out].dtype != "f32":
        return None
    bits = contract.bits
    element, grid = summed(site), Grid(bits)
    chain = _exact(element)
    if not contract.keeps_log:

        def compute(source: Source, needs: Needs) -> Any:
            return _finished(element, rounded(needs[0], bits), source)

        return Local("R(exact sum)", "f32", compute, (chain,))

    def doubtful(source: Source, needs: Needs) -> Doubt | None:
        exact, flags = parts(needs[0])
        return None if flags else doubt(grid, exact, _bound(element, source, needs[1:]))

    def chosen(source: Source, needs: Needs, entry: int | None) -> Any:
        found = doubtful(source, needs)
        if found is None:
            return _finished(element, rounded(needs[0], bits), source)
        return _finished(element, grid.value(found.value(entry)), source)

    def reach(source: Source, needs: Needs) -> Reach | None:
        # With a step after R, x is not a sum of terms (NUMERICS 14.10).
        found = doubtful(source, needs) if is_sum(element) else None
        return None if found is None else found.reach

    needs: tuple[Quantity, ...] = (chain, *_bounds(element.terms))
    return Logged("R(exact sum)", "f32", chosen, doubtful, reach, needs)
