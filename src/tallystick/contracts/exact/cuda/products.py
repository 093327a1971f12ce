"""The products of `exact/1` on a GPU (NUMERICS 17.5 to 17.7): mm, bmm and addmm (17.3; 2.4, 2.5),
convolutions and their gradients (17.2, 17.3; 2.6, 2.7).

The integers of some lines of both operands are laid out and multiplied, then those of others.
No choice of what each launch computes changes a bit: sums of a block are exact, and blocks are
added in their order.

The integers of patches are laid out straight from the image, some places at a time: an element has
one integer for all taps that read it, since its group is that of its image or channel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tallystick.contracts.exact.cuda import exact_kernel
from tallystick.contracts.exact.cuda.layout import ProductSide, SegmentBlocks
from tallystick.contracts.exact.cuda.ways import FORCED, SLICE, DigitTile, ProductShape, Way, choose
from tallystick.contracts.ordered.cuda.reduction import fold
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import THREADS, Outputs, Tensors, f32, over, whole
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import (
    Last,
    Lines,
    ProductTile,
    last_of,
    lines_of,
    multiply,
    wide_bytes,
)
from tallystick.products.cuda.windows import slots
from tallystick.products.operators import (
    CONVOLUTION_OPERATORS,
    MATRIX_OPERATORS,
    Convolution,
    convolutions,
    matrices,
)

_MOST_PARTS = 65535  # along an axis of a grid


@dataclass(frozen=True)
class _Part:
    """The elements that are computed together: those of these batches, rows and columns."""

    batches: range
    rows: range
    columns: range

    @property
    def size(self) -> int:
        return len(self.batches) * len(self.rows) * len(self.columns)


@dataclass(frozen=True)
class ExactTarget:
    """The output: `batches` of rows x columns elements at `out`, `plane` columns in each image, and
    what is added afterwards (Output in native/cuda/blocks.hpp)."""

    out: int
    batches: int
    rows: int
    columns: int
    plane: int
    last: Last = Last()  # noqa: RUF009

    def slots(self, part: _Part) -> bytes:
        """The slots Output for a launch over a part."""
        last, rows, columns = self.last, part.rows, part.columns
        return (
            whole(self.out, len(rows), len(columns), part.batches.start, rows.start, columns.start)
            + whole(self.batches, self.rows, max(self.plane, 1))
            + whole(last.address, last.batch, last.row, last.place)
            + whole(last.alpha != 1, last.address != 0 and last.beta != 0, last.beta != 1)
            + f32(last.alpha, last.beta)
        )


def _cut(count: int, step: int) -> Iterator[range]:
    for first in range(0, count, step):
        yield range(first, min(first + step, count))


@dataclass(frozen=True)
class _Sizes:
    """How much is done together."""

    batches: int
    rows: int
    columns: int

    @property
    def results(self) -> int:
        return self.batches * self.rows * self.columns


def _sizes(target: ExactTarget, way: Way, blocks: SegmentBlocks) -> _Sizes:
    """Operands within FORCED.laid bytes; sums that go through memory within FORCED.results."""
    line = blocks.pitch * (4 if way.tile is None else way.tile.digits)
    if way.tile is None:
        line += 8 * blocks.padded
    most = max(1, FORCED.laid // max(line, 1))
    rows, columns = min(target.rows, most), min(target.columns, most)
    if way.tile is not None and not way.splits:
        # Whole tiles, but for the last, and where a tile's lines do not fit.
        if rows < target.rows:
            rows = rows // way.tile.rows * way.tile.rows or rows
        if columns < target.columns:
            columns = columns // way.tile.cols * way.tile.cols or columns
        limit = target.batches
    else:
        if rows * columns > FORCED.results:
            rows = max(1, FORCED.results // columns)
        columns = min(columns, max(1, FORCED.results // rows))
        limit = max(1, FORCED.results // (rows * columns))
    together = 1
    if rows == target.rows and columns == target.columns:
        together = max(1, min(target.batches, limit, most // max(rows, columns)))
    return _Sizes(together, min(rows, target.rows), min(columns, target.columns))


@dataclass(frozen=True)
class _Work:
    """What the launches share: the slots Groups of a, then of b; addresses of scratch memory by
    names; and how many blocks of terms have room for their sums together. The last part is smaller,
    and has no more room."""

    device: Cuda
    blocks: SegmentBlocks
    target: ExactTarget
    groups: bytes
    at: dict[str, int]
    together: int


def dots(
    device: Cuda, blocks: SegmentBlocks, a: ProductSide, b: ProductSide, target: ExactTarget
) -> None:
    """All elements of the target: DOTs of lines of a and lines of b (17.1)."""
    if not target.batches * target.rows * target.columns:
        return
    shape = ProductShape(target.rows, target.columns, blocks.pitch, blocks.count, target.batches)
    way = choose(blocks.width, shape, device.architecture, device.products is not None)
    sizes = _sizes(target, way, blocks)
    words = a.marks(blocks), b.marks(blocks)
    own = _places(device, way, sizes, blocks)
    flag, *places = device.places([4 * (sum(words) + 1), *own.values()])
    of_a, of_b = flag + 4, flag + 4 * (1 + words[0])
    device.driver.fill(flag, 0, 4 * (sum(words) + 1))
    groups = a.group_slots(blocks, of_a) + b.group_slots(blocks, of_b)
    scratch = {"sums": 0} | dict(zip(own, places, strict=True))
    work = _Work(device, blocks, target, groups, scratch, _together(sizes, blocks))
    everything = _Part(range(target.batches), range(target.rows), range(target.columns))
    if not blocks.terms:
        _totals(work, everything, range(0))
        return
    a.find_most(device, blocks, of_a, flag)
    b.find_most(device, blocks, of_b, flag)
    digits = 0 if way.tile is None else way.tile.digits
    for batches in _cut(target.batches, sizes.batches):
        for rows in _cut(target.rows, sizes.rows):
            a.lay(device, blocks, of_a, batches, rows, digits, scratch["a"])
            for columns in _cut(target.columns, sizes.columns):
                b.lay(device, blocks, of_b, batches, columns, digits, scratch["b"])
                part = _Part(batches, rows, columns)
                if way.tile is None:
                    _in_binary64(work, part)
                elif way.splits:
                    _in_parts(work, way.tile, part)
                else:
                    _whole(work, way.tile, part)
    is_matrix = a.kind == b.kind == "lines"
    params = target.slots(everything) + groups
    params += whole(target.batches, blocks.terms, is_matrix, flag)
    name = f"exact_ordinary_{b.kind}"
    device.launch(name, over(everything.size), THREADS, params + a.operand + b.operand)


def _places(device: Cuda, way: Way, sizes: _Sizes, blocks: SegmentBlocks) -> dict[str, int]:
    """The bytes of the scratch memory of the parts, by names."""
    line = blocks.pitch * (4 if way.tile is None else way.tile.digits)
    found = {"a": sizes.batches * sizes.rows * line, "b": sizes.batches * sizes.columns * line}
    if way.tile is not None and not way.splits:
        kept = 0 if way.tile.own_totals else 8 * way.tile.rows * way.tile.cols
        tiles = way.tile.count(sizes.rows, sizes.columns) * sizes.batches
        found["totals"] = kept * min(tiles, FORCED.kept)
        return found
    together = _together(sizes, blocks) if way.splits else 1
    found["sums"] = 8 * sizes.results * together
    found["totals"] = 8 * sizes.results if together < blocks.count else 0
    if way.tile is None:
        for name, lines in (("wide a", sizes.rows), ("wide b", sizes.columns)):
            found[name] = wide_bytes(device, sizes.batches * lines * blocks.padded)
    return found


def _together(sizes: _Sizes, blocks: SegmentBlocks) -> int:
    """Blocks of terms whose sums stand in memory together, of parts of these sizes or smaller."""
    return max(1, min(blocks.count, FORCED.results // sizes.results, _MOST_PARTS))


def _params(work: _Work, tile: DigitTile, part: _Part, sums: int, first: int, totals: int) -> bytes:
    """The slots Product."""
    blocks, pitch, batches = work.blocks, work.blocks.pitch, len(part.batches)
    rows, columns = len(part.rows), len(part.columns)
    params = whole(work.at["a"], batches * rows * pitch, rows)
    params += whole(work.at["b"], batches * columns * pitch, columns)
    params += work.groups + work.target.slots(part)
    params += whole(batches, blocks.width, -(-rows // tile.rows), -(-columns // tile.cols))
    return params + whole(pitch, blocks.padded // SLICE, blocks.each, sums, first, totals)


def _whole(work: _Work, tile: DigitTile, part: _Part) -> None:
    """A tile of elements is one block's work, with all its terms."""
    count = tile.count(len(part.rows), len(part.columns)) * len(part.batches)
    params = _params(work, tile, part, 0, 0, work.at["totals"])
    grid = (count if tile.own_totals else min(count, FORCED.kept), 1, 1)
    name = f"digits_{tile.name}{'_only' if work.blocks.count == 1 else ''}"
    work.device.launch(name, grid, tile.threads, params, tile.shared)


def _in_parts(work: _Work, tile: DigitTile, part: _Part) -> None:
    """Every block of terms by itself, where there are few elements."""
    count = tile.count(len(part.rows), len(part.columns)) * len(part.batches)
    for terms in _cut(work.blocks.count, work.together):
        params = _params(work, tile, part, work.at["sums"], terms.start, 0)
        grid = (count, len(terms), 1)
        work.device.launch(f"digits_{tile.name}_sums", grid, tile.threads, params, tile.shared)
        _totals(work, part, terms)


def _in_binary64(work: _Work, part: _Part) -> None:
    """A product of binary64 for each block of terms: by cuBLAS, or by rounded.cu."""
    blocks, pitch, at = work.blocks, work.blocks.pitch, work.at
    batches, rows, columns = len(part.batches), len(part.rows), len(part.columns)
    wide = at["wide a"], at["wide b"]
    for q in range(blocks.count):
        first = q * blocks.padded
        terms = min(blocks.padded, pitch - first)
        left = Lines(at["a"] + 4 * first, pitch, 1, rows * pitch, batches)
        right = replace(left, address=at["b"] + 4 * first, batch=columns * pitch)
        multiply(
            work.device, ProductTile(batches, rows, columns), terms, left, right, at["sums"], wide
        )
        _totals(work, part, range(q, q + 1))


def _totals(work: _Work, part: _Part, terms: range) -> None:
    """Add the sums of these blocks of terms to the totals, and end the elements after the last
    one."""
    blocks, at, batches = work.blocks, work.at, len(part.batches)
    params = work.target.slots(part) + work.groups
    params += whole(at["sums"], at["totals"], blocks.width, batches, blocks.each)
    params += whole(terms.start, len(terms), terms.start == 0, terms.stop == blocks.count)
    work.device.launch("exact_totals", over(part.size), THREADS, params)


# --- matrix products ------------------------------------------------------------------------------
def _operand(x: DeviceTensor, line_axis: int, blocks: SegmentBlocks) -> ProductSide:
    """A matrix, or a batch of them, by lines along the axis `line_axis` from the end."""
    lines = lines_of(x, line_axis)
    return ProductSide(
        "lines", lines.slots(), lines, x.shape[line_axis], blocks.terms, blocks.length,
        lines_first=lines.line == 1 and lines.term != 1,
    )  # fmt: skip


@exact_kernel(*MATRIX_OPERATORS, named=True)
def _products(op: str, width: int, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    product = matrices(op, attrs, inputs, outputs)
    batches, m, n, k = product.sizes
    blocks = SegmentBlocks(width, k)
    target = ExactTarget(product.out.address, batches, m, n, n, last_of(product))
    a, b = _operand(product.a, -2, blocks), _operand(product.b, -1, blocks)
    dots(product.out.device, blocks, a, b, target)


# --- convolutions ---------------------------------------------------------------------------------
@exact_kernel(*CONVOLUTION_OPERATORS, named=True)
def _convolutions(op: str, width: int, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    for conv in convolutions(op, attrs, inputs, outputs):
        if conv.makes == "weight":
            _weight_gradient(width, conv)
        elif conv.makes != "bias":
            _images(width, conv)
        elif conv.out.size:
            fold("reduce_sum", conv.y, (0, 2, 3), conv.out)


def _images(width: int, conv: Convolution[DeviceTensor]) -> None:
    """out[n,g·M + i,·] = the DOT of weight line i of group g and the patches."""
    window, rows, w = conv.window, conv.rows, conv.weight
    x, channels, groups, terms = window.x, window.channels, window.groups, window.taps
    blocks = SegmentBlocks(width, terms, window.kernel)
    weight = Lines(w.address, terms, 1, rows * terms, groups)
    if conv.makes == "x":  # the channels of y come first in the weight
        taps = window.kernel
        weight = Lines(w.address, taps, 1, rows * terms, groups, max(taps, 1), rows * taps)
    a = ProductSide("lines", weight.slots(), weight, rows, blocks.terms, blocks.segment)
    area = math.prod(x.shape[2:])
    image = Lines(x.address, x.shape[1] * area, 1, channels * area, groups)
    b = ProductSide(
        "places", slots(window), image, x.shape[0], channels * area,
        max(1, blocks.outer * area), max(window.plane, 1), lines_first=True,
    )  # fmt: skip
    target = ExactTarget(conv.out.address, groups, rows, window.places, window.plane, last_of(conv))
    dots(conv.out.device, blocks, a, b, target)


def _weight_gradient(width: int, conv: Convolution[DeviceTensor]) -> None:
    """out[g·M + i, tap] = the DOT of gradient channel i of group g and the patches of a tap."""
    window, rows, x, grad = conv.window, conv.rows, conv.x, conv.y
    groups, plane, channels = window.groups, window.plane, window.channels
    images, area = x.shape[0], math.prod(x.shape[2:])
    blocks = SegmentBlocks(width, window.places, plane)
    left = Lines(grad.address, plane, 1, rows * plane, groups, max(plane, 1), groups * rows * plane)
    a = ProductSide("lines", left.slots(), left, rows, blocks.terms, blocks.segment)
    right = Lines(x.address, area, 1, channels * area, groups, max(area, 1), x.shape[1] * area)
    b = ProductSide(
        "taps", slots(window), right, channels, images * area,
        max(1, blocks.outer * area), max(window.kernel, 1),
    )  # fmt: skip
    target = ExactTarget(conv.out.address, groups, rows, window.taps, window.taps)
    dots(conv.out.device, blocks, a, b, target)
