"""The operands of a convolution's DOTs as matrices on the processor (NUMERICS 2.6, 2.7): by tiles,
or by element."""

from __future__ import annotations

import numpy as np

from tallystick.products.operators import Convolution, Side, Window
from tallystick.products.tiles import SCRATCH, ranges

Tile = tuple[int, int, int, int]  # images n0..n1, rows of places y0..y1


def image_tiles(images: int, rows: int, per_row: int, budget: int) -> list[Tile]:
    """(n0, n1, y0, y1): whole images together, or rows of one image, of at most `budget` values if
    a row has no more."""
    whole = max(1, rows * per_row)
    if whole <= budget:
        return [(n0, n1, 0, rows) for n0, n1 in ranges(images, budget // whole)]
    step = max(1, budget // max(1, per_row))
    return [(n, n + 1, y0, y1) for n in range(images) for y0, y1 in ranges(rows, step)]


def weight_rows(conv: Convolution[np.ndarray]) -> np.ndarray:
    """f32[groups, M, K], C-contiguous: the rows of the weight that are multiplied with patches."""
    groups, (o, c, kh, kw) = conv.form[3], conv.weight.shape
    rows = conv.weight.reshape(groups, o // groups, c, kh * kw)
    if conv.makes == "x":
        rows = np.ascontiguousarray(rows.transpose(0, 2, 1, 3))
    matrix: np.ndarray = rows.reshape(groups, conv.rows, conv.window.taps)
    return matrix


def view(window: Window[np.ndarray], tile: Tile) -> np.ndarray:
    """f32[n,C,i,j,y,x] of a tile's places: a read-only view of x, or of a padded copy in scratch
    memory."""
    n0, n1, y0, y1 = tile
    rows, columns = window.rows.cut(y0, y1 - y0), window.columns
    x = window.x[n0:n1]
    plain = rows.spread == columns.spread == 1
    inside = (
        rows.low >= 0
        and columns.low >= 0
        and rows.low + rows.reach <= rows.size
        and columns.low + columns.reach <= columns.size
    )
    if plain and inside:
        base = x[:, :, rows.low :, columns.low :]
    else:
        base = SCRATCH.get("padded", (*x.shape[:2], rows.reach, columns.reach), np.float32)
        base.fill(0)
        _scatter(x, base, rows, columns)
    # Where taps go backwards, the first tap is at the far end.
    base = base[:, :, _first(rows) :, _first(columns) :]
    s = base.strides
    taps: np.ndarray = np.lib.stride_tricks.as_strided(
        base,
        (*x.shape[:2], rows.taps, columns.taps, rows.places, columns.places),
        (
            s[0], s[1], s[2] * rows.tap, s[3] * columns.tap,
            s[2] * rows.step, s[3] * columns.step,
        ),
        writeable=False,
    )  # fmt: skip
    return taps


def patches(
    window: Window[np.ndarray], n: np.ndarray, group: np.ndarray, place: np.ndarray
) -> np.ndarray:
    """f32[k, taps]: what places i64[k] of images i64[k] read of groups i64[k], in the order of
    2.6."""
    at, inside = _offsets(window, np.arange(window.kernel), place[:, None])
    channel = (group * window.channels)[:, None, None] + np.arange(window.channels)[:, None]
    taken: np.ndarray = _channels(window)[n[:, None, None], channel, at[:, None, :]]
    taken[np.broadcast_to(~inside[:, None, :], taken.shape)] = 0
    rows: np.ndarray = taken.reshape(len(place), window.taps)
    return rows


def everywhere(window: Window[np.ndarray], channel: np.ndarray, tap: np.ndarray) -> np.ndarray:
    """f32[k, places]: the elements that taps i64[k] of channels i64[k] read at all places of all
    images, in the order of a weight gradient's sum (2.7)."""
    at, inside = _offsets(window, tap[:, None], np.arange(window.plane))
    images = np.arange(len(window.x))[:, None]
    taken: np.ndarray = _channels(window)[images, channel[:, None, None], at[:, None, :]]
    taken[np.broadcast_to(~inside[:, None, :], taken.shape)] = 0
    rows: np.ndarray = taken.reshape(len(tap), window.places)
    return rows


def _offsets(
    window: Window[np.ndarray], tap: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The elements that taps of places read, broadcast: (element of a channel, whether there is
    one)."""
    columns = window.columns
    y, inside_y = _source(window.rows, place // columns.places, tap // columns.taps)
    x, inside_x = _source(columns, place % columns.places, tap % columns.taps)
    return y * columns.size + x, inside_y & inside_x


def _source(side: Side, place: np.ndarray, tap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The elements that taps of places read: (element, whether there is one)."""
    element = place * side.step + tap * side.tap - side.edge
    inside = (element >= 0) & (element < side.size * side.spread)
    if side.spread > 1:
        element, rest = np.divmod(element, side.spread)
        inside &= rest == 0
    return np.where(inside, element, 0), inside


def _channels(window: Window[np.ndarray]) -> np.ndarray:
    """x as [n,C,H·W]; where there are no elements, with a zero that taps outside may read."""
    n, c, height, width = window.x.shape
    if not height * width:
        return np.zeros((n, c, 1), np.float32)
    return window.x.reshape(n, c, height * width)


def _first(side: Side) -> int:
    return (side.taps - 1) * -side.tap if side.tap < 0 else 0


def _scatter(x: np.ndarray, base: np.ndarray, rows: Side, columns: Side) -> None:
    """Put x's elements into their places in `base`, which begins at the least coordinates."""
    sources, targets = [], []
    for side in (rows, columns):
        # Elements e with low <= e·spread < low + reach.
        first = max(0, -(-side.low // side.spread))
        last = min(side.size, -(-(side.low + side.reach) // side.spread))
        if last <= first:
            return
        start = first * side.spread - side.low
        sources.append(slice(first, last))
        targets.append(slice(start, start + (last - first - 1) * side.spread + 1, side.spread))
    base[:, :, targets[0], targets[1]] = x[:, :, sources[0], sources[1]]
