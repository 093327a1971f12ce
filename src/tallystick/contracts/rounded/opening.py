"""The opening rule of the rounded operators: an exact sum, rounded once (NUMERICS 13).

The terms are those of the operator's rule under `ordered/1`. Their exact sum is a chain of chunks,
and the chain's state is the accumulator record. A referee adds one chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.contracts.rounded.accumulators import EMPTY, add_products, add_terms, rounded
from tallystick.opening.dot import Products, Summed
from tallystick.opening.parts import summed
from tallystick.opening.quantity import CHUNK, Chain, Local, Needs, Site, Source

# The terms that a prover gathers at once; the number bounds working memory.
_AT_ONCE = 1 << 20


def is_sum(x: Summed) -> bool:
    """True if the element is R(v*): what is added to a DOT is its last term (NUMERICS 13.3)."""
    return x.after is None or x.last is not None


def count_of(x: Summed) -> int:
    """K of NUMERICS 14.4: the number of terms, with the last one of a DOT."""
    return x.terms.count + (x.last is not None)


def finished(x: Summed, value: np.float32, source: Source) -> Any:
    """The element, given R(v*) or the entry's value (NUMERICS 13.3, 14.5)."""
    return value if is_sum(x) else x.made_of(value, source)


def exact_chain(x: Summed) -> Chain:
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


def rounded_rule(site: Site, bits: int) -> Local:
    """The quantity of an f32 element of a rounded operator on the grid of B = `bits`."""
    element = summed(site)

    def compute(source: Source, needs: Needs) -> Any:
        return finished(element, rounded(needs[0], bits), source)

    return Local("R(exact sum)", "f32", compute, (exact_chain(element),))
