"""The value of a quantity and of its parts, where all operand elements are present.

A prover answers with these values, and tests compare them with the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tallystick.kernels.evaluate import evaluate
from tallystick.opening.dot import canonical
from tallystick.opening.quantity import (
    BLOCK,
    REAL,
    VALUE_DTYPES,
    Array,
    Chain,
    Extremum,
    Index,
    Local,
    Logged,
    Needs,
    Quantity,
    Scalar,
    Source,
    TermsQuantity,
    TreeQuantity,
)

# The terms of a long sum that are made at once; the number bounds a prover's working memory.
_BATCH = 1 << 20


@dataclass(frozen=True)
class WholeSource:
    """Operands as whole arrays; None where an optional one is absent."""

    operands: Sequence[np.ndarray | None]

    def read(self, operand: int, flat: Index) -> Array:
        array = self.operands[operand]
        assert array is not None  # a rule reads only operands that are there
        return array.reshape(-1)[flat]


class NotedReads:
    """Notes which elements of which operands are read; all operands have `dtype`. What it gives
    has no meaning: only for quantities that read the same elements whatever they are."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self.places: dict[int, list[Index]] = {}

    def read(self, operand: int, flat: Index) -> Array:
        self.places.setdefault(operand, []).append(flat)
        return np.zeros(np.shape(flat), VALUE_DTYPES[self._dtype])


class Gathered:
    """Elements of operands that were read before."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, bytes], Array] = {}

    def put(self, operand: int, flat: Index, values: Array) -> None:
        """The elements of `operand` at `flat`."""
        self._found[operand, np.asarray(flat).tobytes()] = np.array(values)

    def read(self, operand: int, flat: Index) -> Array:
        return self._found[operand, np.asarray(flat).tobytes()]


def scalar(dtype: str, value: Any) -> Scalar:
    """`value` as a numpy scalar of the contract's dtype name, bits kept."""
    return cast(Scalar, np.asarray(value, dtype=VALUE_DTYPES[dtype])[()])


def summed(dtype: str, value: Any) -> Scalar:
    """As `scalar`, for what is computed: a NaN is the canonical one (NUMERICS 1.5)."""
    made = scalar(dtype, value)
    return cast(Scalar, canonical(made)[()]) if made.dtype.kind == "f" else made


def stated(chain: Chain, value: Any) -> Scalar:
    """A state of a chain: what it only moves keeps its bits (NUMERICS 9)."""
    return scalar(chain.dtype, value) if chain.moved else summed(chain.dtype, value)


def needs_of(quantity: Quantity, source: Source) -> Needs:
    """The values of all needs of `quantity`."""
    return tuple(value_of(need, source) for need in quantity.needs)


def sum_block(values: Array) -> Scalar:
    """SUM of at most BLOCK values in their own dtype (NUMERICS 3.1, one block)."""
    return cast(Scalar, _sum_rows(values[None])[0])


def _sum_rows(rows: Array) -> Array:
    """SUM of each row of at most BLOCK values, in their own dtype; of real numbers the values and
    the bounds by themselves, each as SUM64 (NUMERICS 3.1, 14.11)."""
    if rows.dtype == np.float64:
        return _sum_rows_64(rows)
    if rows.dtype == REAL:
        found = np.empty(len(rows), REAL)
        for name in ("x", "e"):
            found[name] = _sum_rows_64(np.ascontiguousarray(rows[name]))
        return found
    return np.asarray(evaluate("aten.sum", np.ascontiguousarray(rows), dim=(1,), keepdim=False))


def _sum_rows_64(rows: Array) -> Array:
    """The same tree in binary64, which no operator has by itself (NUMERICS 3.6)."""
    if not rows.shape[1]:
        return np.zeros(len(rows))
    lanes = np.full((len(rows), 32), -0.0)
    with np.errstate(all="ignore"):
        for at in range(0, rows.shape[1], 32):
            part = rows[:, at : at + 32]
            lanes[:, : part.shape[1]] += part
        width = 16
        while width:
            lanes = lanes[:, :width] + lanes[:, width : 2 * width]
            width //= 2
    return canonical(lanes[:, 0])


def blocks_at(count: int, level: int) -> int:
    """The number of values of a Tree or Terms of `count` terms at `level`; 0: sums of raw terms."""
    for _ in range(level + 1):
        count = -(-count // BLOCK)
    return count


def top_level(count: int) -> int:
    """The level at which a Tree or Terms of `count` terms has one value only."""
    level = 0
    while blocks_at(count, level) > 1:
        level += 1
    return level


def tree_values(
    tree: TreeQuantity | TermsQuantity, source: Source, level: int, first: int, last: int
) -> Array:
    """Values number first..last-1 of `tree` at `level` (NUMERICS 3.1)."""
    needs = needs_of(tree, source)
    span = BLOCK ** (level + 1)
    low, high = first * span, min(last * span, tree.count)
    parts = []
    for at in range(low, high, _BATCH):  # _BATCH is a multiple of BLOCK
        terms = tree.terms(source, needs, np.arange(at, min(at + _BATCH, high), dtype=np.int64))
        parts.append(_sum_blocks(terms))
    values = np.concatenate(parts) if parts else np.zeros(0, VALUE_DTYPES[tree.dtype])
    for _ in range(level):
        values = _sum_blocks(values)
    return values


def _sum_blocks(values: Array) -> Array:
    """The block values of consecutive BLOCK-long blocks of `values`."""
    whole = len(values) // BLOCK * BLOCK
    sums = _sum_rows(values[:whole].reshape(-1, BLOCK))
    if whole == len(values):
        return sums
    return np.append(sums, sum_block(values[whole:])).astype(values.dtype)


def chain_states(chain: Chain, source: Source, positions: Sequence[int]) -> Array:
    """States of `chain` after each number of links in `positions`, which ascend."""
    needs = needs_of(chain, source)
    states, state, at = [], chain.start, 0
    for position in positions:
        if position > at:
            state = chain.advance(source, needs, state, at, position)
            at = position
        states.append(stated(chain, state))
    return np.array(states, dtype=VALUE_DTYPES[chain.dtype])


def witness_of(extremum: Extremum, source: Source) -> int:
    """The lowest index of an element that has the extreme value (NUMERICS 1.11, 3.5)."""
    needs, best = needs_of(extremum, source), -1
    found: Array | None = None
    for at in range(0, extremum.count, _BATCH):
        index = np.arange(at, min(at + _BATCH, extremum.count), dtype=np.int64)
        elements = extremum.element(source, needs, index)
        k = best_index(elements, extremum.kind)
        one = elements[k : k + 1]
        # The best so far goes first, so of equal ones the lower index stays.
        if found is None or best_index(np.concatenate([found, one]), extremum.kind) == 1:
            best, found = at + k, one
    return best


def best_index(elements: Array, kind: str) -> int:
    """The lowest index of the extreme one of `elements`."""
    if elements.dtype.kind != "f":
        return int(elements.argmin() if kind == "min" else elements.argmax())
    nans = np.flatnonzero(np.isnan(elements))
    if len(nans):
        return int(nans[0])
    best = elements.min() if kind == "min" else elements.max()
    ties = np.flatnonzero(elements == best)
    if kind != "argmax" and best == 0:  # -0 < +0 except for argmax, where they are equal
        wanted = np.signbit(elements[ties]) == (kind == "min")
        if wanted.any():
            ties = ties[wanted]
    return int(ties[0])


def value_of(quantity: Quantity, source: Source) -> Scalar:
    """The value of `quantity` by the contract."""
    if isinstance(quantity, Local):
        return scalar(quantity.dtype, quantity.compute(source, needs_of(quantity, source)))
    if isinstance(quantity, (TreeQuantity, TermsQuantity)):
        if quantity.count == 0:
            return scalar(quantity.dtype, 0)
        return cast(Scalar, tree_values(quantity, source, top_level(quantity.count), 0, 1)[0])
    if isinstance(quantity, Chain):
        return cast(Scalar, chain_states(quantity, source, [quantity.count])[0])
    if isinstance(quantity, Logged):  # as if there were no entry (NUMERICS 14.5)
        chosen = quantity.compute(source, needs_of(quantity, source), None)
        return scalar(quantity.dtype, chosen)
    index = witness_of(quantity, source)
    if quantity.kind == "argmax":
        return scalar("i64", index)
    needs = needs_of(quantity, source)
    element = quantity.element(source, needs, np.array([index], dtype=np.int64))[0]
    return summed(quantity.dtype, element)
