"""Products of `rounded/1` on a GPU: which part of a product each launch computes.

A product is made in binary64 (native/cuda/rounded.cu), in parts of bounded memory. Then each
element becomes R of its exact sum (NUMERICS 13.3). No choice made here changes a bit: they change w
and its bound (14.4), which decide only the elements that are summed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tallystick.errors import UsageError
from tallystick.kernels.cuda.device import Cuda
from tallystick.kernels.cuda.folds import Layout, Room
from tallystick.kernels.cuda.launch import THREADS, f32, f64, over, whole
from tallystick.numerics.grid import BOUND_FACTOR

# The binary64 values of a result that stand in scratch memory together, and the binary32 values of
# patches: 128 MiB each.
RESULTS, PATCHES = 1 << 24, 1 << 25
_SIDE, _DEPTH = 64, 16  # kSide, kDepth
_BLOCKS = 1056  # of a launch that keeps all multiprocessors of a large GPU busy
_SHORTEST, _LONGEST = 256, 4096  # terms of a part: fewer cost more than they give
_PROCESSORS_GRID = 8192


@dataclass(frozen=True)
class Limits:
    """The sizes of parts. Tests force small ones."""

    results: int = RESULTS
    patches: int = PATCHES
    blocks: int = _BLOCKS
    shortest: int = _SHORTEST
    longest: int = _LONGEST


LIMITS_OF = [Limits()]


@dataclass(frozen=True)
class Lines:
    """An operand's lines of terms, as `Lines` in rounded.cu; `address` of f32, strides in
    elements. Batch g is number g % period."""

    address: int
    line: int
    term: int
    batch: int = 0
    period: int = 1
    run: int = 1 << 62
    outer: int = 0

    def slots(self) -> bytes:
        """The slots Lines."""
        return whole(
            self.address, self.period, self.batch, self.line, self.run, self.outer, self.term
        )

    def layout(self, lines: int, terms: int) -> Layout | None:
        """The lines of all batches, one after the other, as outputs of a fold. None where no fold
        reads them so."""
        count, n = self.period * lines, max(terms, 1)
        if self.period > 1 and lines == 1:
            return Layout(count, terms, 1, self.batch, n, 0, self.term)
        if self.line == 1 and self.term != 1 and lines > 1:
            return Layout(count, terms, lines, self.batch, n, 0, self.term)
        if self.period > 1 and self.batch != lines * self.line:
            return None
        return Layout(count, terms, 1, self.line, n, 0, self.term)


@dataclass(frozen=True)
class Last:
    """What is added after the products (13.3): an operand at `address` with strides by batch, row
    and place. It is the last term, or 2.5 goes on from R with alpha and beta."""

    address: int = 0
    batch: int = 0
    row: int = 0
    place: int = 0
    is_term: bool = False
    alpha: float = 1.0
    beta: float = 0.0


def factor_of(terms: int) -> float:
    """RN64(K)·C of NUMERICS 14.4. Raises UsageError for more terms than the bound covers."""
    if terms > 1 << 32:
        raise UsageError(f"A sum of {terms} terms exceeds the 2^32 of NUMERICS 14.4.")
    return float(terms) * BOUND_FACTOR


def up(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


def part_of(blocks: int, terms: int, size: int) -> int:
    """The number of parts of `terms` terms each product is cut into, where one part makes `blocks`
    blocks and `size` results."""
    limits = LIMITS_OF[0]
    wanted = max(-(-limits.blocks // max(blocks, 1)), -(-terms // limits.longest))
    return max(1, min(wanted, -(-terms // limits.shortest), limits.results // max(size, 1)))


@dataclass(frozen=True)
class Tile:
    """The elements that one product makes: batches, rows and columns from their first ones on, and
    the parts of its terms."""

    batches: int
    rows: int
    columns: int
    parts: int = 1
    first_batch: int = 0
    first_row: int = 0
    first_column: int = 0

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.batches * self.rows * self.columns


def tiles_of(rows: int, columns: int) -> int:
    """Blocks of a product of one batch and one part."""
    return -(-rows // _SIDE) * -(-columns // _SIDE)


def multiply(
    device: Cuda, tile: Tile, terms: int, a: Lines, b: Lines, w: int, adds: bool = False
) -> int:
    """w = a·b of the tile, by parts; its lines begin at the addresses of a and b. Returns the
    number of terms of a part."""
    part = max(_DEPTH, up(-(-terms // tile.parts), _DEPTH))
    m, n = -(-tile.rows // _SIDE), -(-tile.columns // _SIDE)
    params = a.slots() + b.slots()
    params += whole(w, tile.batches, tile.rows, tile.columns, terms, tile.first_batch)
    params += whole(tile.parts, part, adds, m, n)
    grid = (m * n * tile.batches * tile.parts, 1, 1)
    device.launch("rounded_product", grid, THREADS, params)
    return part


@dataclass(frozen=True)
class Target:
    """The output, and what decides its elements: see Decision in rounded.cu. `a_squares`,
    `b_squares`: addresses of binary64 sums; `parts`: additions of sums of parts."""

    out: int
    batches: int
    rows: int
    plane: int
    terms: int
    bits: int
    last: Last
    a_squares: int
    a_period: int
    a_lines: int
    b_squares: int = 0
    b_lines: int = 0
    b_parts: int = 1
    b_step: int = 0

    def share(self, longest: int, sums: int) -> float:
        """The share of E that bounds the error where a term passes through at most `longest`
        additions in its part and `sums` after it (14.4.1, step 2), b's squares being added in
        parts."""
        terms = max(1, self.terms + self.last.is_term)
        share = min(1.0, (longest + sums + self.last.is_term) / terms)
        return share * (1 + self.b_parts * 2.0**-50)


def decide(
    device: Cuda, kind: str, target: Target, tile: Tile, w: int, share: float, operands: bytes
) -> None:
    """Write the tile's elements to the output: R of their exact sums, and what follows it. `kind`
    names the kernel that reads `operands`: "lines", "places" or "taps"."""
    last = target.last
    is_after = not last.is_term
    params = whole(w, tile.parts, tile.batches, tile.rows, tile.columns)
    params += whole(tile.first_batch, tile.first_row, tile.first_column)
    params += whole(target.batches, target.rows, target.plane)
    params += whole(target.a_squares, target.b_squares, target.a_period, target.a_lines)
    params += whole(target.b_lines, target.b_parts, target.b_step)
    params += f64(factor_of(target.terms + last.is_term), share)
    params += whole(last.address, last.batch, last.row, last.place, last.is_term)
    params += whole(
        is_after and last.alpha != 1, is_after and last.beta != 0, is_after and last.beta != 1
    )
    params += f32(last.alpha, last.beta) + whole(target.bits, target.terms, target.out)
    device.launch(f"rounded_decide_{kind}", over(tile.size), THREADS, params + operands)


def _cut(batches: int, m: int, n: int) -> tuple[int, int]:
    """Batches and rows of a tile."""
    most = LIMITS_OF[0].results
    if m * n <= most:
        return max(1, min(batches, most // (m * n))), m
    return 1, min(m, max(_SIDE, most // n // _SIDE * _SIDE))


def product_room(room: Room, batches: int, m: int, n: int, terms: int) -> tuple[int, int, int, int]:
    """Take the memory of `product`: (its place, batches and rows of a tile, parts)."""
    of_batches, of_rows = _cut(batches, m, n)
    size = of_batches * of_rows * n
    parts = part_of(of_batches * tiles_of(of_rows, n), terms, size)
    return room.take(8 * size * parts), of_batches, of_rows, parts


def product(
    device: Cuda,
    a: Lines,
    b: Lines,
    target: Target,
    made: tuple[int, int, int, int],
    room: Room,
    batches: int,
) -> None:
    """All elements of matrices a·b, `batches` of them, of a target whose planes are their
    columns."""
    place, of_batches, of_rows, parts = made
    w = room.at(place)
    for g in range(0, batches, of_batches):
        for i in range(0, target.rows, of_rows):
            tile = Tile(
                min(of_batches, batches - g),
                min(of_rows, target.rows - i),
                target.plane,
                parts,
                g,
                i,
            )
            own = replace(a, address=a.address + 4 * i * a.line)
            part = multiply(device, tile, target.terms, own, b, w)
            share = target.share(min(part, target.terms), parts)
            decide(device, "lines", target, tile, w, share, a.slots() + b.slots())
