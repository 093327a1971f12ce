"""Operands of `exact/1` on a GPU: their groups' largest magnitudes, and their integers laid out by
blocks (NUMERICS 17.2 to 17.4) in scratch memory; over native/cuda/exact.cu."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.contracts.exact import BLOCK_LENGTHS, outer_values
from tallystick.contracts.exact.cuda.ways import SLICE
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import THREADS, over, whole
from tallystick.products.cuda.dots import Lines, up

_OF_WARP, _OF_BLOCK = 4096, 512  # terms of one line that a warp, or a block, looks at
_LINES = 32  # kLaidLines
_MOST_GRID = 1 << 20


@dataclass(frozen=True)
class SegmentBlocks:
    """Segments and blocks of a DOT of `terms` terms (17.2), `inner` to each value of the outer
    coordinate; and the layout of native/cuda/blocks.hpp."""

    width: int
    terms: int
    inner: int = 1

    @property
    def length(self) -> int:
        """L: index values of a block."""
        return BLOCK_LENGTHS[self.width]

    @property
    def outer(self) -> int:
        """Outer values of a segment."""
        return outer_values(self.width, self.inner)

    @property
    def segment(self) -> int:
        """Index values of a segment."""
        return self.outer * max(1, self.inner)

    @property
    def segments(self) -> int:
        """The number of segments."""
        return -(-self.terms // self.segment)

    @property
    def each(self) -> int:
        """Blocks of a whole segment."""
        return -(-self.segment // self.length)

    @property
    def padded(self) -> int:
        """Positions of a block but the last."""
        return up(max(1, min(self.length, self.segment, self.terms)), SLICE)

    @property
    def count(self) -> int:
        """The number of blocks."""
        if self.terms == 0:
            return 0
        last = self.terms - (self.segments - 1) * self.segment
        return (self.segments - 1) * self.each + -(-last // self.length)

    @property
    def pitch(self) -> int:
        """Positions of a line."""
        if self.terms == 0:
            return 0
        last = self.terms - (self.segments - 1) * self.segment
        last -= (-(-last // self.length) - 1) * self.length
        return (self.count - 1) * self.padded + up(last, SLICE)

    def slots(self) -> bytes:
        """The slots Blocks."""
        return whole(
            self.terms, self.segment, self.segments, self.length, self.each, self.padded,
            self.count, self.pitch,
        )  # fmt: skip


@dataclass(frozen=True)
class ProductSide:
    """One side of a product.

    kind, operand: how an element is read: "lines", "places" or "taps", and the slots Lines or
    Window. groups: the lines whose segments are the groups (17.3), `group_lines` of `group_terms`
    elements, cut into segments of `group_segment`; line x of the product belongs to group line
    x / each. The groups of batch g are those of g % groups.period.
    """

    kind: str
    operand: bytes
    groups: Lines
    group_lines: int
    group_terms: int
    group_segment: int
    each: int = 1
    lines_first: bool = False

    def marks(self, blocks: SegmentBlocks) -> int:
        """Words of the magnitudes of all groups and of all lines of groups."""
        return self.groups.period * self.group_lines * (blocks.segments + 1)

    def group_slots(self, blocks: SegmentBlocks, marks: int) -> bytes:
        """The slots Groups; `marks`: the address of the magnitudes."""
        lines = self.groups.period * self.group_lines
        return whole(
            marks, marks + 4 * lines * blocks.segments, self.groups.period, self.group_lines,
            self.each, blocks.segments,
        )  # fmt: skip

    def find_most(self, device: Cuda, blocks: SegmentBlocks, marks: int, flag: int) -> None:
        """Find the magnitudes; the memory at `marks` and the word at `flag` hold zeros."""
        x, lines = self.groups, self.groups.period * self.group_lines
        lines_first = x.line == 1 and x.term != 1 and x.run >= self.group_terms
        most = _OF_BLOCK if lines_first else _OF_WARP
        piece = min(most, self.group_segment)
        pieces = -(-self.group_segment // piece)
        params = x.slots() + whole(
            x.period, self.group_lines, self.group_terms, self.group_segment, blocks.segments,
            piece, pieces, marks, marks + 4 * lines * blocks.segments, flag,
        )  # fmt: skip
        each = blocks.segments * pieces
        if lines_first:
            items = x.period * -(-self.group_lines // _LINES) * each
            grid = (min(max(items, 1), _MOST_GRID), 1, 1)
            device.launch("exact_most_lines", grid, THREADS, params)
        else:
            device.launch("exact_most_terms", over(_LINES * lines * each), THREADS, params)

    def lay(
        self,
        device: Cuda,
        blocks: SegmentBlocks,
        marks: int,
        batches: range,
        lines: range,
        digits: int,
        to: int,
    ) -> None:
        """Lay the integers of these batches and lines at `to`: as planes of 8-bit digits, or with
        `digits` 0 as binary32."""
        plane = len(batches) * len(lines) * blocks.pitch
        params = blocks.slots() + self.group_slots(blocks, marks)
        params += whole(
            batches.start, len(batches), lines.start, len(lines), self.lines_first,
            blocks.width, digits, to, plane,
        )  # fmt: skip
        items = len(batches) * -(-len(lines) // _LINES) * (blocks.pitch // SLICE)
        name = f"exact_{'digits' if digits else 'numbers'}_{self.kind}"
        grid = (min(items, _MOST_GRID), 1, 1)
        device.launch(name, grid, THREADS, params + self.operand)
