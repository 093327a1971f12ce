"""Products of rounded operators on a GPU: which part of a product each launch computes.

A product is made in binary64 (native/cuda/rounded.cu), in parts of bounded memory. Then each
element becomes R of its exact sum (NUMERICS 13.3), or what an entry of a log says (14.5). No choice
made here changes a bit of `rounded/1`: they change w, which decides only the elements that are
summed exactly. Under `replay/1` w decides a trainer's entries too, whose log then gives the bits.
Entries lie on the device as marks: two bits of each element of an output, whether it has an entry
and whether that points up (native/cuda/replay.cu).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import THREADS, f32, f64, over, whole
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.products.cuda.folds import FoldLayout
from tallystick.products.operators import Convolution, Matrices
from tallystick.products.squares import term_factor


@dataclass(frozen=True)
class Marks:
    """The addresses of an output's marks, and of the words that say whose log it is and count
    choices (Marks in replay.cu)."""

    entries: int
    up: int
    control: int

    def slots(self) -> bytes:
        """The slots Marks."""
        return whole(self.entries, self.up, self.control)


@dataclass(frozen=True)
class Rounding:
    """B of NUMERICS 13.2, and the marks of the outputs that have a log (14.2)."""

    bits: int
    marks: Mapping[int, Marks] = field(default_factory=dict)


# The binary64 values of a result that stand in scratch memory together, and the binary32 values of
# patches: 128 MiB each.
RESULTS, PATCHES = 1 << 24, 1 << 25
_SIDE, _DEPTH = 64, 16  # kSide, kDepth
_BLOCKS = 1056  # of a launch that keeps all multiprocessors of a large GPU busy
_SHORTEST, _LONGEST = 256, 4096  # terms of a part: fewer cost more than they give


@dataclass(frozen=True)
class PartSizes:
    """The sizes of parts. Tests force small ones."""

    results: int = RESULTS
    patches: int = PATCHES
    blocks: int = _BLOCKS
    shortest: int = _SHORTEST
    longest: int = _LONGEST


LIMITS_OF = [PartSizes()]


@dataclass(frozen=True)
class Lines:
    """An operand's lines of terms, as `Lines` in operands.hpp; `address` of f32, strides in
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

    def layout(self, lines: int, terms: int) -> FoldLayout | None:
        """The lines of all batches, one after the other, as outputs of a fold. None where no fold
        reads them so."""
        count, n = self.period * lines, max(terms, 1)
        if self.period > 1 and lines == 1:
            return FoldLayout(count, terms, 1, self.batch, n, 0, self.term)
        if self.line == 1 and self.term != 1 and lines > 1:
            return FoldLayout(count, terms, lines, self.batch, n, 0, self.term)
        if self.period > 1 and self.batch != lines * self.line:
            return None
        return FoldLayout(count, terms, 1, self.line, n, 0, self.term)


def lines_of(x: DeviceTensor, line_axis: int) -> Lines:
    """A matrix, or a batch of them, by lines along the axis `line_axis` from the end."""
    line, term = x.steps[line_axis], x.steps[-1 if line_axis == -2 else -2]
    batch, period = (x.steps[0], x.shape[0]) if x.ndim == 3 else (0, 1)
    return Lines(x.address, line, term, batch, period)


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


def steps_of_added(c: DeviceTensor) -> tuple[int, int]:
    """The strides of an addmm's C, in elements, along the rows and the columns of the output, to
    which it is broadcast."""
    own = [0 if size == 1 else step for size, step in zip(c.shape, c.steps, strict=True)]
    row, column = [0] * (2 - c.ndim) + own
    return row, column


def last_of(product: Matrices[DeviceTensor] | Convolution[DeviceTensor]) -> Last:
    """What a product adds last: C of an addmm, or a bias."""
    if isinstance(product, Convolution):
        bias = product.bias
        return Last() if bias is None else Last(bias.address, product.rows, 1, 0, True, beta=1.0)
    if product.c is None:
        return Last()
    steps = steps_of_added(product.c)
    return Last(product.c.address, 0, *steps, product.adds_term, product.alpha, product.beta)


def up(n: int, step: int) -> int:
    """n rounded up to a multiple of `step`."""
    return -(-n // step) * step


def part_of(device: Cuda, blocks: int, terms: int, size: int) -> int:
    """The number of parts that a product of `terms` terms is cut into, where one part makes
    `blocks` blocks and `size` results. A library cuts its products itself."""
    if device.products is not None:
        return 1
    limits = LIMITS_OF[0]
    wanted = max(-(-limits.blocks // max(blocks, 1)), -(-terms // limits.longest))
    return max(1, min(wanted, -(-terms // limits.shortest), limits.results // max(size, 1)))


@dataclass(frozen=True)
class ProductTile:
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


@dataclass(frozen=True)
class Wide:
    """An operand as a library takes it: binary64 at `address`, dense by batches; the terms of a
    line lie side by side, or the lines do (`lines_first`)."""

    address: int
    lines: int
    terms: int
    lines_first: bool


def wide_bytes(device: Cuda, values: int) -> int:
    """The scratch memory for an operand with this many values: none where no library multiplies."""
    return 0 if device.products is None else 8 * values


def _widened(
    device: Cuda, tile: ProductTile, x: Lines, lines: int, terms: int, address: int
) -> Wide:
    lines_first = x.line == 1 and x.term != 1
    slow, fast = (terms, lines) if lines_first else (lines, terms)
    steps = (x.term, x.line) if lines_first else (x.line, x.term)
    params = whole(x.address, x.period, x.batch, *steps)
    params += whole(tile.batches, tile.first_batch, slow, fast, address)
    grid = over(tile.batches * lines * terms)
    device.launch("rounded_widen", grid, THREADS, params)
    return Wide(address, lines, terms, lines_first)


def multiply(
    device: Cuda,
    tile: ProductTile,
    terms: int,
    a: Lines,
    b: Lines,
    w: int,
    wide: tuple[int, int],
    adds: bool = False,
) -> int:
    """w = a·b of the tile, by parts; its lines begin at the addresses of a and b. `wide`: where a
    library's operands go. Returns the number of terms of a part."""
    if device.products is not None and tile.size * terms:
        left = _widened(device, tile, a, tile.rows, terms, wide[0])
        right = _widened(device, tile, b, tile.columns, terms, wide[1])
        device.products.multiply(left, right, w, tile.batches, adds)
        return terms
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
    """The output, and what decides its elements: see Decision in dots.hpp. `a_squares`,
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
    marks: Marks | None = None  # of an output with a log
    b_first: bool = False  # a of 14.4 is our b (OPENING 7.3)

    def share(self, longest: int, sums: int) -> float:
        """The share of E that bounds the error where a term passes through at most `longest`
        additions in its part and `sums` after it (14.4.1, step 2), b's squares being added in
        parts."""
        terms = max(1, self.terms + self.last.is_term)
        share = min(1.0, (longest + sums + self.last.is_term) / terms)
        return share * (1 + self.b_parts * 2.0**-50)


def decide(
    device: Cuda,
    kind: str,
    target: Target,
    tile: ProductTile,
    w: int,
    share: float,
    operands: bytes,
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
    params += f64(term_factor(target.terms + last.is_term), share) + whole(target.b_first)
    params += whole(last.address, last.batch, last.row, last.place, last.is_term)
    params += whole(
        is_after and last.alpha != 1, is_after and last.beta != 0, is_after and last.beta != 1
    )
    params += f32(last.alpha, last.beta) + whole(target.bits, target.terms, target.out)
    kernel, params = f"rounded_decide_{kind}", params + operands
    if target.marks is not None:
        kernel, params = f"replay_decide_{kind}", params + target.marks.slots()
    device.launch(kernel, over(tile.size), THREADS, params)


@dataclass(frozen=True)
class Cut:
    """The tiles of a product of matrices, and the bytes of the scratch memory of one: of w, and of
    a library's operands."""

    batches: int
    rows: int
    columns: int
    parts: int
    sizes: tuple[int, int, int]


def cut(device: Cuda, batches: int, m: int, n: int, terms: int) -> Cut:
    """Cut a product [m, terms]·[terms, n] into tiles."""
    limits = LIMITS_OF[0]
    rows, columns = m, n
    if device.products is not None:  # its operands stand in scratch memory
        most = max(1, limits.patches // max(terms, 1))
        rows, columns = min(m, most), min(n, most)
    if rows * columns > limits.results:
        rows = min(rows, max(_SIDE, limits.results // columns // _SIDE * _SIDE))
    together = 1
    if rows == m and columns == n:
        each = max(1, (m + n) * terms if device.products is not None else 1)
        together = min(batches, limits.results // (m * n), max(1, limits.patches // each))
        together = max(1, together)
    size = together * rows * columns
    parts = part_of(device, together * tiles_of(rows, columns), terms, size)
    wide_a, wide_b = (wide_bytes(device, together * side * terms) for side in (rows, columns))
    return Cut(together, rows, columns, parts, (8 * size * parts, wide_a, wide_b))


def product(
    device: Cuda, a: Lines, b: Lines, target: Target, made: Cut, places: Sequence[int], batches: int
) -> None:
    """All elements of matrices a·b, `batches` of them, of a target whose planes are their columns.
    `places`: the addresses of the scratch memory."""
    w, *wide = places
    for g in range(0, batches, made.batches):
        for j in range(0, target.plane, made.columns):
            for i in range(0, target.rows, made.rows):
                m, n = min(made.rows, target.rows - i), min(made.columns, target.plane - j)
                tile = ProductTile(min(made.batches, batches - g), m, n, made.parts, g, i, j)
                left = replace(a, address=a.address + 4 * i * a.line)
                right = replace(b, address=b.address + 4 * j * b.line)
                part = multiply(device, tile, target.terms, left, right, w, (wide[0], wide[1]))
                share = target.share(min(part, target.terms), made.parts)
                decide(device, "lines", target, tile, w, share, a.slots() + b.slots())
