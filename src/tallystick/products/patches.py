"""The operands of a convolution's DOTs as matrices (NUMERICS 2.6, 2.7), by tiles or by element.

A `Window` reads a 4-D tensor [n,C,H,W] through taps. Tap (c,i,j) of place (y,x) is the element of
channel c at row y·step + i·tap − edge, and at the column that is computed likewise. Outside of the
tensor, and between elements where the tensor is spread, a tap is +0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallystick.products.tiles import SCRATCH


@dataclass(frozen=True)
class Side:
    """One spatial axis: `size` elements, `spread` apart; `places` that read them, `step` apart;
    `taps` of each place, `tap` apart (negative: backwards). The first place's first tap is at
    −`edge`."""

    size: int
    spread: int
    places: int
    step: int
    taps: int
    tap: int
    edge: int

    @property
    def low(self) -> int:
        """The least coordinate that a tap reads."""
        return -self.edge + min(0, (self.taps - 1) * self.tap)

    @property
    def reach(self) -> int:
        """The number of coordinates, from `low`, that taps read."""
        return (self.places - 1) * self.step + (self.taps - 1) * abs(self.tap) + 1

    def cut(self, first: int, places: int) -> Side:
        """The same axis with `places` places from `first`."""
        return Side(
            self.size, self.spread, places, self.step, self.taps, self.tap,
            self.edge - first * self.step,
        )  # fmt: skip

    def source(self, place: np.ndarray, tap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The elements that taps of places read: (element, whether there is one)."""
        element = place * self.step + tap * self.tap - self.edge
        inside = (element >= 0) & (element < self.size * self.spread)
        if self.spread > 1:
            element, rest = np.divmod(element, self.spread)
            inside &= rest == 0
        return np.where(inside, element, 0), inside


@dataclass(frozen=True)
class Window:
    """x f32[n,C,H,W] seen through taps."""

    x: np.ndarray
    rows: Side
    columns: Side

    @property
    def places(self) -> int:
        """Places of one image."""
        return self.rows.places * self.columns.places

    @property
    def taps(self) -> int:
        """Taps of one channel."""
        return self.rows.taps * self.columns.taps

    def view(self, n0: int, n1: int, y0: int, y1: int) -> np.ndarray:
        """f32[n,C,i,j,y,x] of images n0..n1 and rows of places y0..y1: a read-only view of x, or
        of a padded copy in scratch memory."""
        rows, columns = self.rows.cut(y0, y1 - y0), self.columns
        x = self.x[n0:n1]
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
        view: np.ndarray = np.lib.stride_tricks.as_strided(
            base,
            (*x.shape[:2], rows.taps, columns.taps, rows.places, columns.places),
            (
                s[0], s[1], s[2] * rows.tap, s[3] * columns.tap,
                s[2] * rows.step, s[3] * columns.step,
            ),
            writeable=False,
        )  # fmt: skip
        return view

    @property
    def is_plain(self) -> bool:
        """True if there is one tap, and the places are the elements."""
        return all(
            (side.taps, side.step, side.spread, side.edge, side.places) == (1, 1, 1, 0, side.size)
            for side in (self.rows, self.columns)
        )

    def _offsets(self, tap: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The elements that taps of places read, broadcast: (element of a channel, whether there
        is one)."""
        y, inside_y = self.rows.source(place // self.columns.places, tap // self.columns.taps)
        x, inside_x = self.columns.source(place % self.columns.places, tap % self.columns.taps)
        return y * self.columns.size + x, inside_y & inside_x

    def _channels(self) -> np.ndarray:
        """x as [n,C,H·W]; where there are no elements, with a zero that taps outside may read."""
        n, c, height, width = self.x.shape
        if not height * width:
            return np.zeros((n, c, 1), np.float32)
        return self.x.reshape(n, c, height * width)

    def patches(
        self, n: np.ndarray, first: np.ndarray, count: int, place: np.ndarray
    ) -> np.ndarray:
        """f32[k, count·taps]: the elements that places i64[k] of images i64[k] read, of `count`
        channels each from `first` i64[k] on, in the order of 2.6."""
        at, inside = self._offsets(np.arange(self.taps), place[:, None])
        channel = first[:, None, None] + np.arange(count)[:, None]
        taken: np.ndarray = self._channels()[n[:, None, None], channel, at[:, None, :]]
        taken[np.broadcast_to(~inside[:, None, :], taken.shape)] = 0
        patches: np.ndarray = taken.reshape(len(place), count * self.taps)
        return patches

    def everywhere(self, channel: np.ndarray, tap: np.ndarray) -> np.ndarray:
        """f32[k, n·places]: the elements that taps i64[k] of channels i64[k] read at all places of
        all images, in the order of a weight gradient's sum (2.7)."""
        at, inside = self._offsets(tap[:, None], np.arange(self.places))
        images = np.arange(len(self.x))[:, None]
        taken: np.ndarray = self._channels()[images, channel[:, None, None], at[:, None, :]]
        taken[np.broadcast_to(~inside[:, None, :], taken.shape)] = 0
        rows: np.ndarray = taken.reshape(len(tap), len(self.x) * self.places)
        return rows


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


def forward_window(
    x: np.ndarray,
    kernel: tuple[int, int],
    out: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Window:
    """The window through which a convolution reads its input: taps by kernel row and column
    (2.6)."""
    sides = [
        Side(x.shape[2 + a], 1, out[a], stride[a], kernel[a], dilation[a], padding[a])
        for a in range(2)
    ]
    return Window(x, sides[0], sides[1])


def backward_window(
    grad: np.ndarray,
    kernel: tuple[int, int],
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Window:
    """The window through which the input gradient reads the gradient: row (h + pad − i·dil)/stride
    (2.7)."""
    sides = [
        Side(grad.shape[2 + a], stride[a], size[a], 1, kernel[a], -dilation[a], -padding[a])
        for a in range(2)
    ]
    return Window(grad, sides[0], sides[1])
