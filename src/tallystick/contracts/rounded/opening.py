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
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.grid import (
    Doubt,
    Grid,
    Reach,
    bound_of_products,
    bound_of_sum,
    doubt,
)
from tallystick.numerics.operators.common import number
from tallystick.opening.arithmetic import canonical, rn32
from tallystick.opening.dot import (
    Elements,
    Products,
    gradient,
    place_of_bias,
    place_of_c,
    product,
    scaled,
    seen_by,
)
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
from tallystick.opening.reduced import reduced

# The terms that a prover gathers at once; the number bounds working memory.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class RealSum:
    """v* of an element: its terms in order (NUMERICS 13.3), and the operations after R(v*).

    `last` is the term after the products: operand and position. `after` makes the element from
    R(v*); None where R(v*) is the element.
    """

    terms: Products | Elements
    last: tuple[int, int] | None = None
    after: Callable[[Source, Any], Array] | None = None

    @property
    def length(self) -> int:
        """The number of terms, without the last one of a DOT."""
        return self.terms.length if isinstance(self.terms, Products) else self.terms.count

    @property
    def count(self) -> int:
        """K of NUMERICS 14.4."""
        return self.length + (self.last is not None)

    def last_value(self, source: Source) -> Array:
        """The last term, as an array of one binary32 or none."""
        if self.last is None:
            return np.zeros(0, np.float32)
        return source.read(self.last[0], np.array([self.last[1]], dtype=np.int64))

    def finished(self, source: Source, value: np.float32) -> Any:
        """The element, given R(v*) or the entry's value (NUMERICS 13.3, 14.5)."""
        return value if self.after is None else self.after(source, value)


# v* of an element of each rounded operator (NUMERICS 13.1).
exact_sum: Attachments[Callable[[Site], RealSum]] = Attachments(
    "rounded opening rule", "tallystick.contracts.rounded.opening"
)


@exact_sum("aten.mm", "aten.bmm")
def _products(site: Site) -> RealSum:
    return RealSum(product(site, 0))


@exact_sum("aten.addmm")
def _addmm(site: Site) -> RealSum:
    alpha, beta = number(site.attrs, "alpha"), number(site.attrs, "beta")
    if alpha == 1 and beta in (0, 1):
        return RealSum(product(site, 1), (0, place_of_c(site)) if beta else None)
    return RealSum(product(site, 1), after=lambda source, d: scaled(site, source, d))


@exact_sum("aten.convolution")
def _convolution(site: Site) -> RealSum:
    at = place_of_bias(site)
    return RealSum(seen_by(site), None if at is None else (2, at))


@exact_sum("aten.convolution_backward")
def _gradient(site: Site) -> RealSum:
    return RealSum(gradient(site))


@exact_sum("aten.sum", "aten.sum.dim_IntList")
def _sum(site: Site) -> RealSum:
    row = reduced(site)
    return RealSum(Elements("sum", row.count, row.value))


@exact_sum("aten.mean", "aten.mean.dim")
def _mean(site: Site) -> RealSum:
    row = reduced(site)

    @np.errstate(all="ignore")
    def divided(_: Source, total: Any) -> Array:
        return canonical(total / rn32(row.count))

    return RealSum(Elements("sum", row.count, row.value), after=divided)


def _exact(real: RealSum) -> Chain:
    """v* as an accumulator record: a link adds 128 terms."""

    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        end = min(last * CHUNK, real.count)
        for at in range(first * CHUNK, min(end, real.length), _AT_ONCE):
            index = np.arange(at, min(at + _AT_ONCE, end, real.length), dtype=np.int64)
            if isinstance(real.terms, Products):
                state = add_products(state, *real.terms.factors(source, index))
            else:
                state = add_terms(state, real.terms.values(source, (), index))
        if end > real.length:
            state = add_terms(state, real.last_value(source))
        return state

    links = -(-real.count // CHUNK)
    return Chain("exact sum", "acc", links, 1, EMPTY, advance, weight=CHUNK)


def _bounds(real: RealSum) -> tuple[Tree, ...]:
    """The sums in E (NUMERICS 14.4)."""
    terms = real.terms
    if isinstance(terms, Elements):
        values = terms.values

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
        Tree(f"SUM64({name}*{name})", "f64", terms.length, squares(side))
        for side, name in enumerate("ab")
    )


def _bound(real: RealSum, source: Source, sums: Needs) -> float:
    """E, given the values of `_bounds` (NUMERICS 14.4)."""
    try:
        if isinstance(real.terms, Elements):
            bound = bound_of_sum(real.count, float(sums[0]))
        else:
            last = None if real.last is None else float(real.last_value(source)[0])
            bound = bound_of_products(real.count, float(sums[0]), float(sums[1]), last)
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
    real, grid = exact_sum[site.op](site), Grid(bits)
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
        found = doubtful(source, needs) if real.after is None else None
        return None if found is None else found.reach

    needs: tuple[Quantity, ...] = (chain, *_bounds(real))
    return Logged("R(exact sum)", "f32", chosen, doubtful, reach, needs)
