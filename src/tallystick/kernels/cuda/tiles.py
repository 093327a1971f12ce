"""The tiles of products (native/cuda/tiles.hpp): how large each is, and which one a shape takes.

No choice here can change a bit: every tile adds the terms of a result in the clause's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CHUNK = 128  # NUMERICS 2.1
# Multiprocessors for which work is divided: those of an H100.
PROCESSORS = 132
# Chunk values of one launch, in bytes: they fit the second-level cache of an H100 beside operands.
MOST_PARTS = 32 << 20


@dataclass(frozen=True)
class Tile:
    """A row of the table in native/cuda/gemm.cu: `rows` x `cols` results of a block, `down` x
    `across` of a thread; `at_once` blocks on a multiprocessor."""

    name: str
    at_once: int
    rows: int
    cols: int
    down: int
    across: int
    depth: int
    stages: int
    shared_totals: bool

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows // self.down * (self.cols // self.across)

    @property
    def shared(self) -> int:
        """Bytes of a block's dynamic shared memory."""
        floats = self.stages * self.depth * (self.rows + 4 + self.cols + 4)
        return 4 * (floats + (self.rows * self.cols if self.shared_totals else 0))

    def count(self, rows: int, cols: int) -> int:
        """Tiles of a result of `rows` x `cols`."""
        return -(-rows // self.rows) * -(-cols // self.cols)


TILES = {
    tile.name: tile
    for tile in (
        Tile("128x128s", 2, 128, 128, 8, 8, 8, 2, True),
        Tile("128x128r", 1, 128, 128, 8, 8, 16, 3, False),
        Tile("128x256s", 1, 128, 256, 8, 16, 8, 2, True),
        Tile("64x128r", 2, 64, 128, 8, 8, 16, 3, False),
        Tile("64x64r", 4, 64, 64, 4, 8, 16, 3, False),
        Tile("32x64r", 6, 32, 64, 4, 4, 16, 3, False),
    )
}
# From large to small: a shape takes the first one that keeps the device busy.
_ORDER = ("128x256s", "128x128s", "64x128r", "64x64r", "32x64r")
GATHERED = ("128x128r", "64x128r", "64x64r", "32x64r")  # native/cuda/conv.cu


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


def _first(names: Sequence[str], rows: int, cols: int, batch: int, over: int) -> Tile | None:
    """The first tile that is not mostly empty and whose count times `over` fills the device."""
    for name in names:
        tile = TILES[name]
        fits = rows > tile.rows // 2 and cols > tile.cols // 2
        if fits and tile.count(rows, cols) * batch * over >= PROCESSORS * tile.at_once:
            return tile
    return None


def choose(rows: int, cols: int, terms: int, batch: int, gathered: bool = False) -> Choice:
    """The tile for `batch` products of `rows` x `cols` results; `gathered`: of a convolution."""
    names = GATHERED if gathered else _ORDER
    if FORCED.tile is not None:
        found, split = TILES[FORCED.tile], False
    else:
        whole = _first(names, rows, cols, batch, 1)
        # Too few results fill the device only by their chunks.
        parts = None if whole else _first(names[1:], rows, cols, batch, chunks(terms))
        found = whole or parts or TILES[names[-1]]
        split = whole is None and chunks(terms) > 1
    if FORCED.split is not None:
        split = FORCED.split and terms > 0
    return Choice(found, split)
