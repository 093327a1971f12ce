"""Judging entries of a bounded log (NUMERICS 14.6, 14.7): their values, and which are forged.

w and its bound decide most of them (`boundaries`). The exact sum of an element's terms decides the
others (`numerics.grid`).
"""

from __future__ import annotations

import numpy as np

from tallystick.contracts.replay.blocks import Entries
from tallystick.contracts.replay.boundaries import around, indices_of, read_beyond_doubt, values_at
from tallystick.contracts.replay.findings import BoundaryChoices
from tallystick.contracts.replay.step import LoggedStep
from tallystick.contracts.rounded.accumulators import parts, unruly
from tallystick.contracts.rounded.cpu import Piece
from tallystick.numerics.grid import Doubt, Grid, doubt

Array = np.ndarray
# Accumulator records fetched at a time: 80 bytes each, and the operands of their terms.
_AT_ONCE = 4096
FORGED = "no admissible kernel's result is near the boundary that it reads"


def judge_entries(
    step: LoggedStep, number: int, piece: Piece, entries: Entries, flat: Array, count_taken: bool
) -> Array:
    """bool[k], a mask of the entries that are not forged; the forged ones become findings.

    The entries are those of section `number` for a piece, at positions in it. `flat` f32 holds R(w)
    of the piece's elements, and gets the entries' values (14.6, 14.7). With `count_taken` the
    function sums every entry's element exactly.
    """
    bits, at, directions = step.logged.contract.bits, entries.positions, entries.directions
    w, bounds = piece.w.reshape(-1)[at], piece.bound(at)
    near = around(w, bounds, bits)
    named = np.where(directions == 1, near.high, near.low)
    own = np.zeros(len(at), np.int64)
    own[near.finite] = indices_of(flat[at[near.finite]], bits)
    right = near.close & (named == own)
    step.choices.left += int(right.sum())
    if count_taken and right.any():
        sure = piece.rounded(at[right], bits)
        step.choices.taken += int((sure != flat[at[right]]).sum())
    forged, without_effect = read_beyond_doubt(w, bounds, near, directions, bits)
    open_to_doubt = np.flatnonzero(~(right | forged | without_effect))
    for begin in range(0, len(open_to_doubt), _AT_ONCE):
        some = open_to_doubt[begin : begin + _AT_ONCE]
        own_bounds, choices = bounds[some], step.choices
        forged[some] = _by_exact_sums(piece, entries.select(some), own_bounds, flat, bits, choices)
    step.found_entries("forged entry", number, piece.flat(at[forged]), directions[forged], FORGED)
    return ~forged


def _by_exact_sums(
    piece: Piece, entries: Entries, bounds: Array, flat: Array, bits: int, choices: BoundaryChoices
) -> Array:
    """bool[k], a mask of the forged entries, by the exact sum (14.4, 14.7). Values go to `flat`."""
    grid, at = Grid(bits), entries.positions
    records = piece.accumulators(at)
    chosen = np.zeros(len(at), np.int64)
    forged, wild = np.zeros(len(at), np.bool_), np.zeros(len(at), np.bool_)
    for k in range(len(at)):
        total, flags = parts(records[k].view("V80")[0])
        if unruly(flags) is not None:
            forged[k] = wild[k] = True
            continue
        direction = int(entries.directions[k])
        truth: Doubt = doubt(grid, total, float(bounds[k]))
        chosen[k] = truth.value(direction)
        forged[k] = truth.forged(direction)
        choices.left += truth.open
        choices.taken += truth.value(direction) != truth.nearest
    flat[at] = values_at(chosen, grid.bits)
    if wild.any():
        flat[at[wild]] = piece.rounded(at[wild], grid.bits)
    return forged
