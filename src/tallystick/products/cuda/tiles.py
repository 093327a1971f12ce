"""The tiles of products (native/cuda/tiles.hpp): how large each is, and which one a shape takes.

No choice here can change a bit: every tile adds the terms of a result in the clause's order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

CHUNK = 128  # NUMERICS 2.1
# Multiprocessors for which work is divided: those of an H100.
PROCESSORS = 132
# Chunk values of one launch, in bytes: they fit the second-level cache of an H100 beside operands.
MOST_PARTS = 32 << 20


@dataclass(frozen=True)
class Tile:
    """A row of the table in native/cuda/gemm.cu: `rows` x `cols` results of a block, `down` x
    `across` of a thread; `at_once` blocks on a multiprocessor.

    `rate` is the share of a multiprocessor's multiply-adds that the tile is expected to reach
    (benchmarks/NOTES.md); it only decides between tiles.
    """

    name: str
    at_once: int
    rows: int
    cols: int
    down: int
    across: int
    depth: int
    shared_totals: bool
    rate: float

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows // self.down * (self.cols // self.across)

    @property
    def shared(self) -> int:
        """Bytes of a block's dynamic shared memory."""
        floats = 2 * self.depth * (self.rows + 4 + self.cols + 4)
        return 4 * (floats + (self.rows * self.cols if self.shared_totals else 0))

    def count(self, rows: int, cols: int) -> int:
        """Tiles of a result of `rows` x `cols`."""
        return -(-rows // self.rows) * -(-cols // self.cols)


TILES = {
    tile.name: tile
    for tile in (
        Tile("128x128w", 2, 128, 128, 8, 16, 8, True, 0.90),
        Tile("128x128r", 1, 128, 128, 8, 8, 16, False, 0.80),
        Tile("64x128r", 2, 64, 128, 8, 8, 16, False, 0.80),
        Tile("64x64r", 4, 64, 64, 8, 8, 16, False, 0.78),
        Tile("32x64r", 4, 32, 64, 4, 8, 16, False, 0.62),
        Tile("16x64r", 8, 16, 64, 4, 4, 16, False, 0.40),
    )
}
PRODUCTS = tuple(name for name in TILES if name != "128x128r")  # without one kept for timing
GATHERED = ("128x128r", "32x64r")  # native/cuda/conv.cu; those of 64 rows spill registers there
_MOST_TERMS = 1 << 31  # of one block
# Warps of a multiprocessor that hide the waiting of each other.
_ENOUGH_WARPS = 8
# What a chunk's value costs that goes through memory, beside its 128 multiply-adds.
_PART = 0.4


def chunks(terms: int) -> int:
    """The chunks of a DOT (NUMERICS 2.1)."""
    return -(-terms // CHUNK)


@dataclass(frozen=True)
class Choice:
    """A tile, and whether each block computes one chunk only."""

    tile: Tile
    split: bool


@dataclass
class Forced:
    """What the tests and the benchmarks set, to take one tile or way for every shape."""

    tile: str | None = None
    split: bool | None = None
    most_parts: int = MOST_PARTS


FORCED = Forced()


def _time(tile: Tile, rows: int, cols: int, terms: int, batch: int, split: bool) -> float:
    """What the products are expected to cost, in any unit: that of the busiest multiprocessor."""
    parts = chunks(terms) if split else 1
    blocks = -(-tile.count(rows, cols) * batch * parts // PROCESSORS)  # of one multiprocessor
    warps = min(blocks, tile.at_once) * tile.threads / 32
    each = tile.rows * tile.cols * max(chunks(terms) / parts, 1)
    if split:
        each *= 1 + _PART
    return blocks * each / (tile.rate * math.sqrt(min(1.0, warps / _ENOUGH_WARPS)))


def choose(rows: int, cols: int, terms: int, batch: int, gathered: bool = False) -> Choice:
    """The tile for `batch` products of `rows` x `cols` results; `gathered`: of a convolution."""
    names: Iterable[str] = GATHERED if gathered else PRODUCTS
    splits: Iterable[bool] = (False, True) if chunks(terms) > 1 else (False,)
    if terms >= _MOST_TERMS:
        splits = (True,)
    if FORCED.tile is not None and (FORCED.tile in GATHERED or not gathered):
        names = (FORCED.tile,)
    if FORCED.split is not None:
        splits = (FORCED.split and terms > 0,)
    ways = [Choice(TILES[name], split) for name in names for split in splits]
    return min(ways, key=lambda w: _time(w.tile, rows, cols, terms, batch, w.split))
