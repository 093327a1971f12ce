"""DOT under `ordered/1` (NUMERICS 2), bit for bit the contract's, and what every contract's rule
needs of an element's sum.

A DOT is a chain whose links are chunks of 128 terms. Each chunk is a partial that the referee can
execute. numpy's own +, -, *, / and sqrt on float32 arrays are IEEE-754 operations (NUMERICS 1.3).
What numpy lacks is here: the canonical NaN (1.5), additions one after the other, a chunk (2.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tallystick.kernels import elements
from tallystick.kernels.evaluate import evaluate
from tallystick.opening import approx
from tallystick.opening.approx import Approx
from tallystick.opening.quantity import CHUNK, Array, Chain, Index, Needs, Source, TreeQuantity


def canonical(x: Any) -> Array:
    """`x` as f32 or f64 array with every NaN the canonical one (NUMERICS 1.5)."""
    return cast(Array, x) if isinstance(x, Approx) else elements.canonical(x)


def accumulated(state: Any, added: Any, count: int) -> Any:
    """state + added[0] + added[1] + ..., one after the other; `count` additions in all."""
    if isinstance(state, Approx) or isinstance(added, Approx):
        state, added = approx.real(state), approx.widened(approx.real(added), count)
        values = np.append(state.value, added.value)
        errors = np.append(state.error, added.error)
        return Approx(np.add.accumulate(values)[-1], np.add.accumulate(errors)[-1])
    return np.add.accumulate(np.append(state, added).astype(np.float32))[-1]


def started(state: Any, count: int) -> Any:
    """The start of `count` additions. It is added too, so it gets their bound."""
    return approx.widened(state, count) if isinstance(state, Approx) else state


def dot_chunk(a: Array, b: Array) -> np.float32:
    """The partial of one chunk, at most 128 terms (NUMERICS 2.1)."""
    row = np.ascontiguousarray(a, dtype=np.float32).reshape(1, -1)
    column = np.ascontiguousarray(b, dtype=np.float32).reshape(-1, 1)
    return cast(np.float32, np.asarray(evaluate("aten.mm", row, column))[0, 0])


def dot_partials(a: Array, b: Array) -> Array:
    """Partials of several whole chunks: a, b are (chunks, CHUNK) arrays (NUMERICS 2.1)."""
    left = np.ascontiguousarray(a, dtype=np.float32)[:, None, :]
    right = np.ascontiguousarray(b, dtype=np.float32)[:, :, None]
    return cast(Array, np.asarray(evaluate("aten.bmm", left, right)).reshape(-1))


# The whole chunks whose factors a prover gathers at once; the number bounds working memory.
_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class Group:
    """The group of a factor: `each` elements of an operand for every value of the outer coordinate
    (NUMERICS 17.3). `members` gives those number `index`."""

    each: int
    members: Callable[[Source, Index], Array]


@dataclass(frozen=True)
class Products:
    """The `count` terms of a DOT, in order. Every contract's rule adds them up.

    `factors` gives both factors of those number `index`. `inner` is I of NUMERICS 17.2; the groups
    are those of the left and of the right factors.
    """

    name: str
    count: int
    factors: Callable[[Source, Index], tuple[Array, Array]]
    inner: int
    groups: Callable[[], tuple[Group, Group]]


@dataclass(frozen=True)
class Summed:
    """An element that is the sum of its terms, or that is made of one such sum.

    `after` makes the element of the sum; None where it is the sum. `last` reads the operand's
    element that is added to the sum, where the element is just that.
    """

    terms: Products | TreeQuantity
    after: Callable[[Source, Needs], Any] | None = None
    last: Callable[[Source], Array] | None = None

    def made_of(self, total: Any, source: Source) -> Any:
        """The element, given the sum."""
        return total if self.after is None else self.after(source, (total,))


def dot(products: Products, chunk: int = CHUNK) -> Chain:
    """DOT as a chain of chunks (NUMERICS 2.1, 2.2). A contract may have another length of them."""
    length, factors = products.count, products.factors

    @np.errstate(all="ignore")
    def advance(source: Source, _: Needs, state: Any, first: int, last: int) -> Any:
        whole = min(last, length // chunk)  # the last chunk may be shorter, and is not padded (2.3)
        for at in range(first, whole, _AT_ONCE):
            until = min(at + _AT_ONCE, whole)
            a, b = factors(source, np.arange(at * chunk, until * chunk, dtype=np.int64))
            partials = dot_partials(a.reshape(-1, chunk), b.reshape(-1, chunk))
            # Chunk 0 initialises: it is not added to +0 (2.2).
            terms = partials if at == 0 else np.append(state, partials).astype(np.float32)
            state = np.add.accumulate(terms)[-1]
        if last > whole:
            short = dot_chunk(*factors(source, np.arange(whole * chunk, length, dtype=np.int64)))
            state = short if whole == 0 else state + short
        return state

    count = -(-length // chunk)
    return Chain(products.name, "f32", count, 1, np.float32(0), advance, weight=chunk)
