"""How a product of `exact/1` is multiplied on a GPU: by 8-bit digits with 32-bit sums
(native/cuda/digits.cu), or in binary64 (rounded.cu, or cuBLAS). Which one changes no bit (NUMERICS
17.8); the start-up probe of a GPU looks at all of them (contracts/gpu_probe.py).

One table decides, by device and shape. **Its rates are predictions** (benchmarks/NOTES.md): no GPU
was to be had while this was built.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.contracts.exact.contract import Exact
from tallystick.contracts.gpu_probe import same
from tallystick.products.cuda.tiles import PROCESSORS

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda

SLICE = 64  # kSlice: positions
# Bytes of one operand's integers, and values of sums, that stand in scratch memory together.
LAID, RESULTS = 1 << 28, 1 << 24
# Blocks of a grid whose totals lie in scratch memory: several for each multiprocessor there is.
KEPT = 4 * PROCESSORS
# A tile's copies step between lines in 32 bits.
_LONGEST_LINE = 1 << 24
DIGITS = {8: 1, 15: 2, 22: 3}  # 17.8


@dataclass(frozen=True)
class DigitTile:
    """A row of the table in native/cuda/digits.cu: elements of a block and of a warp, stages,
    blocks on a multiprocessor. `own_totals`: in registers. `rate`: the expected share of what the
    units for integers can do."""

    digits: int
    rows: int
    cols: int
    warp: tuple[int, int]
    stages: int
    at_once: int
    own_totals: bool
    rate: float

    @property
    def name(self) -> str:
        """The kernel's name is `digits_` and this."""
        return f"{self.digits}x{self.rows}x{self.cols}"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.rows // self.warp[0]) * (self.cols // self.warp[1])

    @property
    def shared(self) -> int:
        """Bytes of a block's dynamic shared memory."""
        return self.stages * self.digits * (self.rows + self.cols) * SLICE

    def count(self, rows: int, cols: int) -> int:
        """Tiles of a result of `rows` x `cols`."""
        return -(-rows // self.rows) * -(-cols // self.cols)


TILES = (
    DigitTile(1, 128, 96, (32, 48), 4, 1, True, 0.70),
    DigitTile(2, 128, 96, (32, 48), 3, 1, False, 0.80),
    DigitTile(3, 64, 128, (32, 32), 2, 1, False, 0.85),
    DigitTile(1, 32, 64, (16, 32), 4, 4, True, 0.40),
    DigitTile(2, 32, 64, (16, 32), 3, 4, False, 0.45),
    DigitTile(3, 32, 64, (16, 32), 2, 3, False, 0.50),
)  # fmt: skip


@dataclass(frozen=True)
class Speeds:
    """Multiply-adds of a multiprocessor in a cycle: of 8-bit integers by `mma`, of binary64 by our
    own kernel, and by cuBLAS."""

    digits: float
    own: float
    library: float


# By architecture, from published peaks. On an H100 `mma` reaches 0.62 of what `wgmma` does.
SPEEDS = {
    "sm_80": Speeds(2048, 27, 60),
    "sm_86": Speeds(1024, 1.8, 1.9),
    "sm_89": Speeds(1024, 1.8, 1.9),
    "sm_90": Speeds(2540, 54, 115),
    "sm_100": Speeds(2048, 54, 60),
}
_OTHERS = Speeds(1024, 1.8, 1.9)


@dataclass(frozen=True)
class Way:
    """The choice. `tile` None: binary64. `splits`: each block of terms by itself."""

    tile: DigitTile | None
    splits: bool = False

    @property
    def name(self) -> str:
        """For the tests and the benchmarks."""
        if self.tile is None:
            return "binary64"
        return self.tile.name + ("_sums" if self.splits else "")


@dataclass
class ForcedWay:
    """What the tests and the benchmarks set. `way`: a name, or None."""

    way: str | None = None
    laid: int = LAID
    results: int = RESULTS
    kept: int = KEPT


FORCED = ForcedWay()


def ways(width: int) -> list[Way]:
    """All ways for B = `width`."""
    own = [tile for tile in TILES if tile.digits == DIGITS[width]]
    return [*(Way(tile) for tile in own), Way(own[-1], True), Way(None)]


@dataclass(frozen=True)
class ProductShape:
    """A product: `batch` of rows x cols results, of `pitch` positions in `blocks` blocks."""

    rows: int
    cols: int
    pitch: int
    blocks: int
    batch: int


def _cycles(way: Way, shape: ProductShape, speeds: Speeds, has_library: bool) -> float:
    """The expected cycles of the busiest multiprocessor."""
    if way.tile is None:
        side = 128 if has_library else 64
        tiles = -(-shape.rows // side) * -(-shape.cols // side) * shape.batch
        terms = side * side * shape.pitch
        waves = -(-tiles // PROCESSORS)
        own = waves * terms / (speeds.library if has_library else speeds.own)
        # Every block's sums go through memory: 32 bytes an element, some 13 bytes a cycle.
        return own + shape.blocks * shape.rows * shape.cols * shape.batch * 2.5 / PROCESSORS
    tile = way.tile
    parts = max(1, shape.blocks) if way.splits else 1
    tiles = tile.count(shape.rows, shape.cols) * shape.batch * parts
    terms = tile.rows * tile.cols * shape.pitch // parts
    waves = -(-tiles // PROCESSORS)
    warps = min(waves, tile.at_once) * tile.threads / 32
    share = tile.rate * math.sqrt(min(1.0, warps / 8))
    found = waves * terms * tile.digits**2 / (speeds.digits * share)
    if way.splits:
        found += shape.blocks * shape.rows * shape.cols * shape.batch * 1.5 / PROCESSORS
    return found


def choose(width: int, shape: ProductShape, architecture: str, has_library: bool) -> Way:
    """The way for a product of integers of B = `width` on a GPU of `architecture`."""
    every = ways(width)
    if FORCED.way is not None:
        every = [way for way in every if way.name == FORCED.way] or every
    elif shape.pitch >= _LONGEST_LINE:
        every = every[-1:]
    elif shape.blocks <= 1:
        every = [way for way in every if not way.splits]
    speeds = SPEEDS.get(architecture, _OTHERS)
    return min(every, key=lambda way: _cycles(way, shape, speeds, has_library))


def differing_ways(device: Cuda, contract: Exact) -> Iterator[str]:
    """The ways to multiply integers (NUMERICS 17.8) that give other bits: on several blocks of
    terms of very different sizes, with ties, the largest integers, and infinities."""
    rng, length = np.random.default_rng(17), BLOCK_LENGTHS[contract.width]
    shapes = ((70, 2 * length + 70), (2 * length + 70, 35))
    a, b = (
        (rng.standard_normal(s) * np.exp2(rng.integers(-20, 20, s))).astype(np.float32)
        for s in shapes
    )
    a[:2] = np.nextafter(np.float32(1), np.float32(0)) * np.array([[1], [-1]], np.float32)
    a[2] = np.float32(2.0**-contract.width) * rng.integers(-99, 99, shapes[0][1])
    a[2, 0], b[:, 0], a[3, 5], b[9, 3] = 0.75, a[0, 0], np.inf, -np.inf
    try:
        for way in ways(contract.width):
            FORCED.way = way.name
            if not same(device, contract, ("aten.mm", {}, [a, b])):
                yield f"aten.mm by {way.name}"
    finally:
        FORCED.way = None
