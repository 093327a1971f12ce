"""The kernel of a node under the bounded form: the recorder's, or the follower's (NUMERICS 14.5 to
14.7).

Both decide the pieces of a node's outputs. Where no boundary is near, a piece's value is the
rounded product. For the other elements the recorder writes an entry, or the follower takes the
followed log's entry or sums exactly. The follower's own log has the followed one's entries without
the forged ones (14.7), so an honest log gives the same digest.
"""

from __future__ import annotations

import numpy as np

from tallystick.contracts.replay.boundaries import around, indices_of, read_beyond_doubt, values_at
from tallystick.contracts.replay.entries import Collector, Entries, decode, encode
from tallystick.contracts.replay.findings import BoundaryChoices, LogCorruptError
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import LoggedStep, NodeCall, NodeKernels
from tallystick.contracts.rounded.cpu import run_rounded
from tallystick.contracts.rounded.cpu.pieces import Piece
from tallystick.contracts.rounded.opening import number_and_flags, special_value
from tallystick.numerics.grid import Doubt, Grid, doubt

Array = np.ndarray


# --- recording (14.6) -----------------------------------------------------------------------------
class BoundedRecord:
    """A trainer, for one output: rounds its own products, and notes an entry where a boundary is
    near."""

    def __init__(self, bits: int) -> None:
        self._bits, self._made = bits, Collector()

    def decide(self, piece: Piece) -> None:
        """Give the piece its values, and note their entries (14.6)."""
        bits, values = self._bits, piece.room()
        at = piece.doubtful(2.0, bits, values)
        if len(at):
            near = around(piece.w.reshape(-1)[at], piece.bound(at), bits)
            # More boundaries than one: the true value, and no entry (14.6).
            exact = at[~near.finite | (near.high - near.low > 1)]
            flat = values.reshape(-1)
            if len(exact):
                flat[exact] = piece.rounded(exact, bits)
            logged = at[near.close]
            up: np.ndarray = indices_of(flat[logged], bits) == near.high[near.close]
            self._made.add(piece.flat(logged), up)
        piece.store(values)

    def entries(self) -> Entries:
        """The output's entries, once all its pieces are decided."""
        return self._made.entries()


# --- judging entries: their values, and which are forged (14.6, 14.7) -----------------------------
# w and its bound decide most of them (`boundaries`), the exact sum the others (`numerics.grid`).
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
        total, flags = number_and_flags(records[k].view("V80")[0])
        if special_value(flags) is not None:
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


# --- following: the values that job and log give (14.5) -------------------------------------------


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


# --- the kernel of a node -------------------------------------------------------------------------
class BoundedKernels(NodeKernels):
    """The kernels of the nodes that have bounded sections, over the log of the step that runs.

    With `count_taken` a follower sums every entry's element exactly: `Choices.taken` is then exact.
    """

    def __init__(self, logged: LoggedProgram, count_taken: bool = False) -> None:
        super().__init__(logged)
        self._count_taken = count_taken

    def _run(self, step: LoggedStep, call: NodeCall) -> None:
        deciders = {out: self._decider(step, number) for out, number in call.sections.items()}

        def decide(piece: Piece) -> None:
            deciders[piece.output].decide(piece)

        run_rounded(call.spec.name, decide, call.attrs, call.inputs, call.outputs)
        for out, number in call.sections.items():
            section, entries = self._logged.sections[number], deciders[out].entries()
            step.sink.bounded(number, encode(section, entries))

    def _decider(self, step: LoggedStep, number: int) -> BoundedRecord | BoundedFollow:
        """The object that decides the pieces of section `number`, and then gives its entries."""
        if step.follows:
            return BoundedFollow(step, number, self._count_taken)
        return BoundedRecord(self._logged.contract.bits)
