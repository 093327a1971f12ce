"""Judging entries of a published log (NUMERICS 14.10): the values that they may give.

A follower asks about the few elements whose value an entry changes. Exact sums of terms decide
about sums of products, opening rules about all others.
"""

from __future__ import annotations

import numpy as np

from tallystick.commit.log import ENTRIES_PER_BYTE
from tallystick.contracts.replay.published.record import LoggedCall
from tallystick.contracts.rounded.cpu import Piece, run_rounded
from tallystick.contracts.rounded.opening import is_sum, parts
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.grid import Grid, doubt
from tallystick.numerics.registry import summed_operators
from tallystick.numerics.types import DTYPE_NAMES, TensorType
from tallystick.opening.parts import summed
from tallystick.opening.quantity import Logged, Site, opening_rule
from tallystick.opening.values import WholeSource, needs_of

Array = np.ndarray
# Exact sums fetched at a time: 80 bytes each, and the operands of their terms.
_EXACT_AT_ONCE = 4096
# After this number of false values of one output, of an operator that is no sum, the follower does
# not look at the rest: each costs an evaluation of an opening rule, in Python.
_FALSE_LOOKED_AT = 16


def entries_at(packed: Array, positions: Array) -> Array:
    """i64[k]: entries number `positions` i64[k] of packed bytes u8[n], each at most 242."""
    groups, places = np.divmod(positions, ENTRIES_PER_BYTE)
    entries: Array = packed[groups].astype(np.int64) // 3**places % 3
    return entries


def true_values(
    call: LoggedCall, positions: Array, values: Array, entries: Array, contract: str
) -> Array:
    """bool[k]: True where an element may have its value by its entry.

    The elements are at `positions` i64[k], ascending, with values f32[k] and entries i64[k]. An
    element without a bound may have any value. For an operator that is no sum, the check ends at
    the `_FALSE_LOOKED_AT`-th false value.
    """
    if call.spec.name in summed_operators():
        return _true_sums(call, positions, values, entries, Grid(parse_contract(contract).bits))
    return _true_by_rules(call, positions, values, entries, contract)


def _true_by_rules(
    call: LoggedCall, positions: Array, values: Array, entries: Array, contract: str
) -> Array:
    """By the opening rule of each element (14.11)."""
    true: list[bool] = []
    source, missed = WholeSource(call.inputs), 0
    types = tuple(None if x is None else _type_of(x) for x in call.inputs)
    made = tuple(_type_of(x) for x in call.outputs)
    for at, value, entry in zip(positions.tolist(), values, entries.tolist(), strict=True):
        site = Site(call.spec.name, call.attrs, types, made, call.out, at, contract)
        rule = opening_rule(site)
        assert isinstance(rule, Logged)  # every logged output of this form is one
        reach = rule.reach(source, needs_of(rule, source))
        true.append(reach is None or reach.true(reach.grid.index(value), entry))
        missed += not true[-1]
        if missed == _FALSE_LOOKED_AT:
            break
    return np.array(true, np.bool_)


def _type_of(x: Array) -> TensorType:
    return TensorType(DTYPE_NAMES[x.dtype], x.shape)


def _true_sums(
    call: LoggedCall, positions: Array, values: Array, entries: Array, grid: Grid
) -> Array:
    """By the exact sum of each element's terms and its bound (14.4)."""
    true = np.ones(len(positions), np.bool_)
    if len(positions) == 0 or not _is_sum(call):
        return true

    def decide(piece: Piece) -> None:
        piece.store(np.zeros(piece.w.shape, np.float32))
        if piece.output != call.out:
            return
        at, which = _inside(piece, positions)
        for begin in range(0, len(at), _EXACT_AT_ONCE):
            some = slice(begin, begin + _EXACT_AT_ONCE)
            records, bounds = piece.accumulators(at[some]), piece.bound(at[some])
            for k, record, bound in zip(which[some], records, bounds, strict=True):
                total, flags = parts(record.view("V80")[0])
                if flags:  # with a term that is not finite x is no sum: not judged
                    continue
                reach = doubt(grid, total, float(bound)).reach
                true[k] = reach.true(grid.index(values[k]), int(entries[k]))

    scratch = [np.empty(o.shape, o.dtype) for o in call.outputs]
    run_rounded(call.spec.name, decide, call.attrs, call.inputs, scratch)
    return true


def _is_sum(call: LoggedCall) -> bool:
    """True if an element of this summed operator is R of its terms' sum, so that it is bounded."""
    types = tuple(None if x is None else _type_of(x) for x in call.inputs)
    made = tuple(_type_of(x) for x in call.outputs)
    site = Site(call.spec.name, call.attrs, types, made, call.out, 0)
    return is_sum(summed(site))


def _inside(piece: Piece, positions: Array) -> tuple[Array, Array]:
    """The output positions that lie in the piece, counted there, i64[m]; and their indices."""
    rows, columns = piece.w.shape
    step = piece.row_step if rows > 1 else max(columns, 1)
    row, column = np.divmod(positions - piece.start, max(step, 1))
    inside = np.flatnonzero((row >= 0) & (row < rows) & (column < columns))
    return row[inside] * columns + column[inside], inside
