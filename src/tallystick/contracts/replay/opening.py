"""Opening rules of elements that a log may round (NUMERICS 14).

Bounded (14.4 to 14.7): the exact sum is that of `rounded/1`. The sums that bound a kernel's error
are quantities too.

Published (14.11): an operator's own rule on real numbers. `lifted` turns the rule of `ordered/1`
into the same quantities over `Approx`: the micro-graph's results in the real numbers, with a bound.
Extremes of operands and integers stay as they are. The element itself may then be any value that
its party's entry gives for an x within the bound.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from tallystick.contracts.rounded.opening import (
    count_of,
    exact_chain,
    finished,
    is_sum,
    number_and_flags,
    rounded,
)
from tallystick.kernels.loops import names_of
from tallystick.numerics.grid import (
    Doubt,
    Grid,
    Reach,
    bound_of_products,
    bound_of_sum,
    doubt,
    reach_of,
)
from tallystick.numerics.registry import lookup, summed_operators
from tallystick.opening.approx import Approx, RealSource, packed, real, unpacked, widened
from tallystick.opening.dot import Products, Summed
from tallystick.opening.parts import summed
from tallystick.opening.quantity import (
    REAL,
    Array,
    Chain,
    Extremum,
    Index,
    Local,
    Logged,
    Needs,
    Quantity,
    Scalar,
    Site,
    Source,
    TermsQuantity,
    TreeQuantity,
)
from tallystick.opening.real_pointwise import lifted_form, real_graph
from tallystick.opening.rules import operands_of, sizes_of


# --- the bounded form -----------------------------------------------------------------------------
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
        exact, flags = number_and_flags(needs[0])
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


# --- the published form ---------------------------------------------------------------------------
# OPENING 10.9 has no row for these: 9.3 lifts their rules, whose quantity is called "out".
_BY_THEIR_RULES = frozenset({"aten.mse_loss_backward"})


def _needed(needs: Needs) -> Needs:
    """The values of the needs, in the form that a lifted rule takes."""
    return tuple(_one_need(value) for value in needs)


def _one_need(value: Any) -> Any:
    dtype = np.asarray(value).dtype
    if dtype == REAL:
        return unpacked(value)
    return Approx(value) if dtype.kind == "f" else value


def lifted(q: Quantity) -> Quantity:
    """The quantity over real numbers; see the module."""
    if isinstance(q, Extremum) or q.dtype not in ("f32", "f64"):
        return q
    needs = tuple(lifted(need) for need in q.needs)
    if isinstance(q, Local):
        return Local(q.name, "real", _computed(q.compute), needs)
    if isinstance(q, TreeQuantity):
        return TreeQuantity(q.name, "real", q.count, _terms(q), needs)
    if isinstance(q, TermsQuantity):
        return _lifted_terms(q, needs)
    assert isinstance(q, Chain)  # a rounded operator's element is not lifted
    return _lifted_chain(q, needs)


def _computed(compute: Callable[[Source, Needs], Any]) -> Callable[[Source, Needs], Any]:
    def of(source: Source, needs: Needs) -> Any:
        with np.errstate(all="ignore"):
            found = compute(cast(Source, RealSource(source)), _needed(needs))
        return packed(found)[()]

    return of


def _terms(q: TreeQuantity) -> Callable[[Source, Needs, Index], Array]:
    def of(source: Source, needs: Needs, index: Index) -> Array:
        with np.errstate(all="ignore"):
            found = q.terms(cast(Source, RealSource(source)), _needed(needs), index)
        return packed(widened(real(found), q.count))

    return of


def _lifted_terms(q: TermsQuantity, needs: tuple[Quantity, ...]) -> TermsQuantity:
    def term(i: int) -> Quantity:
        def added(_: Source, given: Needs) -> Any:
            return packed(widened(unpacked(given[0]), q.count))[()]

        return Local(f"term {i}", "real", added, (lifted(q.term(i)),))

    def terms(source: Source, _: Needs, index: Index) -> Array:
        from tallystick.opening.values import value_of

        return np.array([value_of(term(int(i)), source) for i in index], dtype=REAL)

    return TermsQuantity(q.name, "real", q.count, term, terms, needs)


def _lifted_chain(q: Chain, needs: tuple[Quantity, ...]) -> Chain:
    def advance(source: Source, given: Needs, state: Any, first: int, last: int) -> Any:
        at = unpacked(state)
        found = q.advance(cast(Source, RealSource(source)), _needed(given), at, first, last)
        return packed(found)[()]

    start = cast(Scalar, packed(np.asarray(q.start, np.float64))[()])
    return Chain(q.name, "real", q.count, q.stretch, start, advance, needs, q.weight)


def _pointwise(site: Site) -> Quantity:
    spec, graph = lookup(site.op), real_graph.get(site.op)

    def compute(source: Source, _: Needs) -> Any:
        given = operands_of(site, cast(Source, RealSource(source)))
        with np.errstate(all="ignore"):
            if graph is not None:
                made = graph(site.attrs, given)
            else:
                named = dict(zip(names_of(spec), given, strict=False))
                made = lifted_form(spec, site.attrs, named, sizes_of(site, spec))
        chosen = real(made[site.out] if isinstance(made, list) else made)
        return packed(chosen.reshape(-1)[0])[()]

    return Local("out" if site.op in _BY_THEIR_RULES else "x", "real", compute)


def published_rule(site: Site, rule: Callable[[Site], Quantity], bits: int) -> Logged | None:
    """The rule of a published element that no exact sum bounds; None for other elements.

    `rule` is `ordered/1`'s; `bits` is B of the grid.
    """
    spec = lookup(site.op)
    if site.op in summed_operators() or site.outputs[site.out].dtype != "f32" or spec.is_unlogged:
        return None
    grid = Grid(bits)
    x = _pointwise(site) if spec.forms else lifted(rule(site))
    if spec.is_random:
        x = replace(x, name="x")

    def reach(_: Source, needs: Needs) -> Reach | None:
        found = cast(Approx, _one_need(needs[0]))
        value, error = float(found.value), float(found.error)
        if not (math.isfinite(value) and math.isfinite(error)):
            return None
        return reach_of(grid, value, error)

    def compute(source: Source, needs: Needs, _: int | None) -> Any:
        found = reach(source, needs)
        if found is None:
            with np.errstate(all="ignore"):
                return np.float32(cast(Approx, _one_need(needs[0])).value)
        return grid.value(found.nearest)

    return Logged("R(x)", "f32", compute, lambda *_: None, reach, (x,))
