"""Recording and following bounded rounding logs (NUMERICS 14.2 to 14.8).

Both decide the pieces of `numerics.rounded`. Where no boundary is near, a piece's value is the
rounded product. For the other elements the recorder writes an entry, or the follower sums exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tallystick.kernels.rounded import Piece, run_rounded
from tallystick.kernels.table import Run
from tallystick.numerics.grid import Doubt, Grid, doubt
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.opening.accumulators import parts, unruly
from tallystick.program.ir import Node, Program
from tallystick.rounding.blocks import Entries, decode, encode
from tallystick.rounding.faults import LogCorruptError
from tallystick.rounding.rules import around, indices_of, read_beyond_doubt, values_at
from tallystick.rounding.session import LogSource, MakeSink, Session

Array = np.ndarray
# Accumulator records fetched at a time: 80 bytes each, and the operands of their terms.
_AT_ONCE = 4096
_FORGED = "no admissible kernel's result is near the boundary that it reads"


class _Collector:
    """The entries of one output, from pieces that come in any order."""

    def __init__(self) -> None:
        self._positions: list[Array] = []
        self._directions: list[Array] = []

    def add(self, positions: Array, directions: Array) -> None:
        if len(positions):
            self._positions.append(positions)
            self._directions.append(directions.astype(np.uint8))

    def entries(self) -> Entries:
        if not self._positions:
            return Entries.none()
        positions, directions = map(np.concatenate, (self._positions, self._directions))
        order = np.argsort(positions, kind="stable")
        return Entries(positions[order], directions[order])


class _Bounded(Session):
    """Shared by recorder and follower: the nodes that have sections, and the end of a node."""

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        outputs = [
            out for out in range(len(node.out_types)) if self.number_of(index, out) is not None
        ]
        if not outputs:
            return None

        def run(attrs: Attrs, inputs: Sequence[Array | None], given: Sequence[Array]) -> None:
            numbers = [self._numbers[index, out] for out in outputs]
            deciders = [self._decider(number) for number in numbers]
            run_rounded(
                node.op, lambda piece: deciders[piece.output][0](piece), attrs, inputs, given
            )
            for number, (_, entries) in zip(numbers, deciders, strict=True):
                self.sink.bounded(number, encode(self.sections[number], entries()))

        return run

    def _decider(self, number: int) -> tuple[Callable[[Piece], None], Callable[[], Entries]]:
        """The object that decides the pieces of section `number`, and then gives its entries."""
        raise NotImplementedError


class BoundedRecorder(_Bounded):
    """A trainer: rounds its own products, and writes an entry where a boundary is near (14.6)."""

    def __init__(self, program: Program, sink: MakeSink | None = None) -> None:
        super().__init__(program, sink)

    def _decider(self, number: int) -> tuple[Callable[[Piece], None], Callable[[], Entries]]:
        made, bits = _Collector(), self.contract.bits

        def decide(piece: Piece) -> None:
            values = piece.room()
            at = piece.doubtful(2.0, bits, values)
            if len(at):
                near = around(piece.w.reshape(-1)[at], piece.bound(at), bits)
                # More boundaries than one: the true value, and no entry (14.6).
                exact = at[~near.finite | (near.high - near.low > 1)]
                flat = values.reshape(-1)
                if len(exact):
                    flat[exact] = piece.rounded(exact, bits)
                logged = at[near.close]
                up = indices_of(flat[logged], bits) == near.high[near.close]
                made.add(piece.flat(logged), up)
            piece.store(values)

        return decide, made.entries


class BoundedFollower(_Bounded):
    """An auditor: computes the values that job and log give (14.5), by the rules of 14.6.

    Its own log has the followed one's entries without the forged ones (14.7), so an honest log
    gives the same digest. With `count_taken` the follower sums every entry's element exactly, and
    `choices.taken` is exact.
    """

    def __init__(
        self,
        program: Program,
        source: LogSource,
        sink: MakeSink | None = None,
        count_taken: bool = False,
    ) -> None:
        super().__init__(program, sink, source)
        self._count_taken = count_taken

    def _followed(self, number: int) -> Entries:
        """The followed log's entries of section `number`; empty where they cannot be read."""
        if self._reader is None:
            return Entries.none()
        try:
            blocks = self._reader.bounded(number)
        except LogCorruptError as error:
            self.report(error)
            return Entries.none()
        entries, malformed = decode(self.sections[number], blocks)
        for block in malformed.tolist():
            self.found("malformed block", number, detail=f"block {block} is no block of a log")
        beyond = entries.positions >= self.sections[number].elements
        outside = entries.select(beyond)
        self.found_entries(
            "impossible entry",
            number,
            outside.positions,
            outside.directions,
            "the output has no such element",
        )
        return entries.select(~beyond)

    def _decider(self, number: int) -> tuple[Callable[[Piece], None], Callable[[], Entries]]:
        entries, kept = self._followed(number), _Collector()

        def decide(piece: Piece) -> None:
            bits = self.contract.bits
            values = piece.room()
            doubtful = piece.doubtful(1.0, bits, values)
            at, directions = _within(piece, entries)
            flat = values.reshape(-1)
            unlogged = np.setdiff1d(doubtful, at, assume_unique=True)
            if len(unlogged):
                flat[unlogged] = piece.rounded(unlogged, bits)
            if len(at):
                honest = self._apply(number, piece, at, directions, flat)
                kept.add(piece.flat(at[honest]), directions[honest])
            piece.store(values)

        return decide, kept.entries

    def _apply(self, number: int, piece: Piece, at: Array, directions: Array, flat: Array) -> Array:
        """Give the elements `at` their entries' values; a mask of the entries that are not forged.

        `flat` holds R(w) (14.6, 14.7).
        """
        bits = self.contract.bits
        w, bounds = piece.w.reshape(-1)[at], piece.bound(at)
        near = around(w, bounds, bits)
        named = np.where(directions == 1, near.high, near.low)
        own = np.zeros(len(at), np.int64)
        own[near.finite] = indices_of(flat[at[near.finite]], bits)
        right = near.close & (named == own)
        self.choices.left += int(right.sum())
        if self._count_taken and right.any():
            sure = piece.rounded(at[right], bits)
            self.choices.taken += int((sure != flat[at[right]]).sum())
        forged, without_effect = read_beyond_doubt(w, bounds, near, directions, bits)
        open_to_doubt = np.flatnonzero(~(right | forged | without_effect))
        for begin in range(0, len(open_to_doubt), _AT_ONCE):
            some = open_to_doubt[begin : begin + _AT_ONCE]
            forged[some] = self._judged(piece, at[some], bounds[some], directions[some], flat)
        self.found_entries(
            "forged entry", number, piece.flat(at[forged]), directions[forged], _FORGED
        )
        return ~forged

    def _judged(
        self, piece: Piece, at: Array, bounds: Array, directions: Array, flat: Array
    ) -> Array:
        """Decide entries by the exact sum. Values go to `flat`. A mask of the forged entries."""
        grid = Grid(self.contract.bits)
        records = piece.accumulators(at)
        chosen = np.zeros(len(at), np.int64)
        forged, wild = np.zeros(len(at), np.bool_), np.zeros(len(at), np.bool_)
        for k in range(len(at)):
            total, flags = parts(records[k].view("V80")[0])
            if unruly(flags) is not None:
                forged[k] = wild[k] = True
                continue
            direction = int(directions[k])
            truth: Doubt = doubt(grid, total, float(bounds[k]))
            chosen[k] = truth.value(direction)
            forged[k] = truth.forged(direction)
            self.choices.left += truth.open
            self.choices.taken += truth.value(direction) != truth.nearest
        flat[at] = values_at(chosen, grid.bits)
        if wild.any():
            flat[at[wild]] = piece.rounded(at[wild], grid.bits)
        return forged


def _within(piece: Piece, entries: Entries) -> tuple[Array, Array]:
    """Positions in the piece of the entries for its elements, and their directions."""
    rows, columns = piece.w.shape
    end = piece.start + (rows - 1) * piece.row_step + columns if rows and columns else piece.start
    first, last = np.searchsorted(entries.positions, (piece.start, end))
    offsets = entries.positions[first:last] - piece.start
    if rows > 1:
        row, column = np.divmod(offsets, piece.row_step)
    else:
        row, column = np.zeros_like(offsets), offsets
    inside = column < columns
    at = (row * columns + column)[inside]
    return at, entries.directions[first:last][inside]
