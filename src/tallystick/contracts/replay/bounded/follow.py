"""Following a bounded log (NUMERICS 14.5): the values that job and log give.

The follower's own log has the followed one's entries without the forged ones (14.7), so an honest
log gives the same digest.
"""

from __future__ import annotations

import numpy as np

from tallystick.contracts.replay.blocks import Collector, Entries, decode
from tallystick.contracts.replay.bounded.judge import judge_entries
from tallystick.contracts.replay.faults import LogCorruptError
from tallystick.contracts.replay.step import LoggedStep
from tallystick.contracts.rounded.cpu import Piece

Array = np.ndarray


class BoundedFollow:
    """An auditor, for section `number`: computes the values that job and log give (14.5)."""

    def __init__(self, step: LoggedStep, number: int, count_taken: bool) -> None:
        self._step, self._number, self._count_taken = step, number, count_taken
        self._followed, self._kept = followed_entries(step, number), Collector()

    def decide(self, piece: Piece) -> None:
        """Give the piece its values: by its entries where it has some, else by exact sums where a
        boundary is near (14.5)."""
        bits, values = self._step.logged.contract.bits, piece.room()
        doubtful = piece.doubtful(1.0, bits, values)
        entries = _within(piece, self._followed)
        at = entries.positions
        flat = values.reshape(-1)
        unlogged = np.setdiff1d(doubtful, at, assume_unique=True)
        if len(unlogged):
            flat[unlogged] = piece.rounded(unlogged, bits)
        if len(at):
            count = self._count_taken
            honest = judge_entries(self._step, self._number, piece, entries, flat, count)
            self._kept.add(piece.flat(at[honest]), entries.directions[honest])
        piece.store(values)

    def entries(self) -> Entries:
        """The output's entries without the forged ones, once all its pieces are decided."""
        return self._kept.entries()


def followed_entries(step: LoggedStep, number: int) -> Entries:
    """The followed log's entries of section `number`; empty where they cannot be read.

    Reports invalid blocks (COMMITMENTS 10.2) and entries for no element (14.7) as findings.
    """
    if step.source is None:
        return Entries.none()
    try:
        blocks = step.source.bounded(number)
    except LogCorruptError as error:
        step.report(error)
        return Entries.none()
    section = step.logged.sections[number]
    entries, malformed = decode(section, blocks)
    for block in malformed.tolist():
        step.found("malformed block", number, detail=f"block {block} is no block of a log")
    beyond = entries.positions >= section.elements
    outside, why = entries.select(beyond), "the output has no such element"
    step.found_entries("impossible entry", number, outside.positions, outside.directions, why)
    return entries.select(~beyond)


def _within(piece: Piece, entries: Entries) -> Entries:
    """The entries for the piece's elements, at their positions in the piece."""
    rows, columns = piece.w.shape
    end = piece.start + (rows - 1) * piece.row_step + columns if rows and columns else piece.start
    first, last = np.searchsorted(entries.positions, (piece.start, end))
    offsets = entries.positions[first:last] - piece.start
    if rows > 1:
        row, column = np.divmod(offsets, piece.row_step)
    else:
        row, column = np.zeros_like(offsets), offsets
    inside = column < columns
    return Entries(row * columns + column, entries.directions[first:last]).select(inside)
