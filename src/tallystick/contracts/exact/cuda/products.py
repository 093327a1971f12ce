"""Products of `exact/1` on a GPU: which part each launch computes (NUMERICS 17.5 to 17.7).

The integers of some lines of both operands are laid out and multiplied, then those of others.
No choice made here changes a bit: sums of a block are exact, and blocks are added in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tallystick.contracts.exact.cuda.layout import Blocks, Operand
from tallystick.contracts.exact.cuda.ways import FORCED, SLICE, Shape, Tile, Way, choose
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import THREADS, f32, over, whole
from tallystick.products.cuda.dots import Last, Lines, multiply, wide_bytes
from tallystick.products.cuda.dots import Tile as Part
from tallystick.products.cuda.folds import Room

_MOST_PARTS = 65535  # along an axis of a grid


@dataclass(frozen=True)
class Target:
    """The output: `batches` of rows x columns elements at `out`, `plane` columns in each image, and
    what is added afterwards (Output in native/cuda/blocks.hpp)."""

    out: int
    batches: int
    rows: int
    columns: int
    plane: int
    last: Last = Last()  # noqa: RUF009

    def slots(self, batch: int, rows: range, columns: range) -> bytes:
        """The slots Output for a launch over these rows and columns, from a batch on."""
        last = self.last
        return (
            whole(self.out, len(rows), len(columns), batch, rows.start, columns.start)
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


def _sizes(target: Target, way: Way, blocks: Blocks) -> _Sizes:
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
class _Laid:
    """What the launches share: addresses of magnitudes and integers; and how many blocks of terms
    have room for their sums together. The last part is smaller, and has no more room."""

    device: Cuda
    blocks: Blocks
    groups: bytes  # Groups of a, then of b
    a: int
    b: int
    together: int


def dots(device: Cuda, blocks: Blocks, a: Operand, b: Operand, target: Target) -> None:
    """All elements of the target: DOTs of lines of a and lines of b (17.1)."""
    if not target.batches * target.rows * target.columns:
        return
    room = Room(device)
    shape = Shape(target.rows, target.columns, blocks.pitch, blocks.count, target.batches)
    way = choose(blocks.width, shape, device.architecture, device.products is not None)
    sizes = _sizes(target, way, blocks)
    words = a.marks(blocks), b.marks(blocks)
    marks = room.take(4 * (sum(words) + 1))
    places = _places(device, room, way, sizes, blocks)
    flag = room.at(marks)
    of_a, of_b = flag + 4, flag + 4 * (1 + words[0])
    device.driver.fill(flag, 0, 4 * (sum(words) + 1))
    groups = a.group_slots(blocks, of_a) + b.group_slots(blocks, of_b)
    all_rows, all_columns = range(target.rows), range(target.columns)
    if not blocks.terms:
        output = target.slots(0, all_rows, all_columns)
        _totals(device, blocks, groups, output, (0, 0), target.batches, target, range(0))
        return
    a.find_most(device, blocks, of_a, flag)
    b.find_most(device, blocks, of_b, flag)
    together = _together(sizes, blocks)
    laid = _Laid(device, blocks, groups, room.at(places["a"]), room.at(places["b"]), together)
    digits = 0 if way.tile is None else way.tile.digits
    scratch = {name: room.at(place) for name, place in places.items()}
    for batches in _cut(target.batches, sizes.batches):
        for rows in _cut(target.rows, sizes.rows):
            a.lay(device, blocks, of_a, batches, rows, digits, laid.a)
            for columns in _cut(target.columns, sizes.columns):
                b.lay(device, blocks, of_b, batches, columns, digits, laid.b)
                if way.tile is None:
                    _in_binary64(laid, target, batches, rows, columns, scratch)
                elif way.splits:
                    _in_parts(laid, way.tile, target, batches, rows, columns, scratch)
                else:
                    _whole(laid, way.tile, target, batches, rows, columns, scratch)
    is_matrix = a.kind == b.kind == "lines"
    params = target.slots(0, all_rows, all_columns) + groups
    params += whole(target.batches, blocks.terms, is_matrix, flag)
    size = target.batches * target.rows * target.columns
    name = f"exact_ordinary_{b.kind}"
    device.launch(name, over(size), THREADS, params + a.operand + b.operand)


def _places(device: Cuda, room: Room, way: Way, sizes: _Sizes, blocks: Blocks) -> dict[str, int]:
    """The scratch memory of the parts, by names."""
    line = blocks.pitch * (4 if way.tile is None else way.tile.digits)
    found = {
        "a": room.take(sizes.batches * sizes.rows * line),
        "b": room.take(sizes.batches * sizes.columns * line),
    }
    if way.tile is not None and not way.splits:
        kept = 0 if way.tile.own_totals else 8 * way.tile.rows * way.tile.cols
        tiles = way.tile.count(sizes.rows, sizes.columns) * sizes.batches
        found["totals"] = room.take(kept * min(tiles, FORCED.kept))
        return found
    together = _together(sizes, blocks) if way.splits else 1
    found["sums"] = room.take(8 * sizes.results * together)
    found["totals"] = room.take(8 * sizes.results if together < blocks.count else 0)
    if way.tile is None:
        for name, lines in (("wide a", sizes.rows), ("wide b", sizes.columns)):
            found[name] = room.take(wide_bytes(device, sizes.batches * lines * blocks.padded))
    return found


def _together(sizes: _Sizes, blocks: Blocks) -> int:
    """Blocks of terms whose sums stand in memory together, of parts of these sizes or smaller."""
    return max(1, min(blocks.count, FORCED.results // sizes.results, _MOST_PARTS))


def _params(
    laid: _Laid, tile: Tile, target: Target, batches: range, rows: range, columns: range,
    sums: int, first: int, totals: int,
) -> bytes:  # fmt: skip
    """The slots Product."""
    blocks, pitch = laid.blocks, laid.blocks.pitch
    params = b"".join(
        whole(address, len(batches) * len(lines) * pitch, len(lines))
        for address, lines in ((laid.a, rows), (laid.b, columns))
    )
    params += laid.groups + target.slots(batches.start, rows, columns)
    params += whole(len(batches), blocks.width)
    params += whole(-(-len(rows) // tile.rows), -(-len(columns) // tile.cols))
    return params + whole(pitch, blocks.padded // SLICE, blocks.each, sums, first, totals)


def _whole(
    laid: _Laid, tile: Tile, target: Target, batches: range, rows: range, columns: range,
    scratch: dict[str, int],
) -> None:  # fmt: skip
    """A tile of elements is one block's work, with all its terms."""
    count = tile.count(len(rows), len(columns)) * len(batches)
    params = _params(laid, tile, target, batches, rows, columns, 0, 0, scratch["totals"])
    grid = (count if tile.own_totals else min(count, FORCED.kept), 1, 1)
    name = f"digits_{tile.name}{'_only' if laid.blocks.count == 1 else ''}"
    laid.device.launch(name, grid, tile.threads, params, tile.shared)


def _in_parts(
    laid: _Laid, tile: Tile, target: Target, batches: range, rows: range, columns: range,
    scratch: dict[str, int],
) -> None:  # fmt: skip
    """Every block of terms by itself, where there are few elements."""
    blocks = laid.blocks
    count = tile.count(len(rows), len(columns)) * len(batches)
    for part in _cut(blocks.count, laid.together):
        params = _params(laid, tile, target, batches, rows, columns, scratch["sums"], part.start, 0)
        grid = (count, len(part), 1)
        laid.device.launch(f"digits_{tile.name}_sums", grid, tile.threads, params, tile.shared)
        output = target.slots(batches.start, rows, columns)
        addresses = scratch["sums"], scratch["totals"]
        _totals(laid.device, blocks, laid.groups, output, addresses, len(batches), target, part,
                len(rows) * len(columns))  # fmt: skip


def _in_binary64(
    laid: _Laid, target: Target, batches: range, rows: range, columns: range,
    scratch: dict[str, int],
) -> None:  # fmt: skip
    """A product of binary64 for each block of terms: by cuBLAS, or by rounded.cu."""
    blocks, pitch = laid.blocks, laid.blocks.pitch
    part = Part(len(batches), len(rows), len(columns))
    for q in range(blocks.count):
        first = q * blocks.padded
        terms = min(blocks.padded, pitch - first)
        left = Lines(laid.a + 4 * first, pitch, 1, len(rows) * pitch, len(batches))
        right = replace(left, address=laid.b + 4 * first, batch=len(columns) * pitch)
        wide = scratch["wide a"], scratch["wide b"]
        multiply(laid.device, part, terms, left, right, scratch["sums"], wide)
        output = target.slots(batches.start, rows, columns)
        addresses = scratch["sums"], scratch["totals"]
        _totals(laid.device, blocks, laid.groups, output, addresses, len(batches), target,
                range(q, q + 1), len(rows) * len(columns))  # fmt: skip


def _totals(
    device: Cuda, blocks: Blocks, groups: bytes, output: bytes, addresses: tuple[int, int],
    batches: int, target: Target, part: range, each: int | None = None,
) -> None:  # fmt: skip
    """Add the sums of the blocks `part` to the totals, and end the elements after the last one."""
    size = batches * (target.rows * target.columns if each is None else each)
    params = output + groups + whole(*addresses, blocks.width, batches, blocks.each)
    params += whole(part.start, len(part), part.start == 0, part.stop == blocks.count)
    device.launch("exact_totals", over(size), THREADS, params)
