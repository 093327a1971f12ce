"""Images seen through the taps of a convolution (native/cuda/operands.hpp), and patches."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.devices.cuda.launch import THREADS, over, whole
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.operators.dot import geometry
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import BLOCK

_MOST_ROWS = 65535  # along an axis of a grid


@dataclass(frozen=True)
class Side:
    """One spatial axis of a window, as products/patches.py has it."""

    size: int
    spread: int
    places: int
    step: int
    taps: int
    tap: int
    edge: int

    def slots(self) -> bytes:
        """The slots Side."""
        return whole(self.size, self.spread, self.places, self.step, self.taps, self.tap, self.edge)


@dataclass(frozen=True)
class Window:
    """x [n,C,H,W] seen through taps, by `groups` groups of channels."""

    x: DeviceTensor
    groups: int
    rows: Side
    columns: Side

    @property
    def channels(self) -> int:
        """Channels of a group."""
        return self.x.shape[1] // self.groups

    @property
    def taps(self) -> int:
        """Taps of a place, in one group."""
        return self.channels * self.rows.taps * self.columns.taps

    @property
    def plane(self) -> int:
        """Places of one image."""
        return self.rows.places * self.columns.places

    @property
    def places(self) -> int:
        """Places of all images."""
        return self.x.shape[0] * self.plane

    def slots(self) -> bytes:
        """The slots Window."""
        area = self.x.shape[2] * self.x.shape[3]
        image = self.x.shape[1] * area
        strides = whole(self.x.address, image, self.channels * area, area)
        return strides + self.rows.slots() + self.columns.slots()

    def lay(self, first: int, count: int, address: int) -> None:
        """Write the taps of `count` places: f32 [groups, taps, count]."""
        lines = self.groups * self.taps
        params = self.slots() + whole(self.groups, self.taps, first, count, address)
        grid = (over(count)[0], max(1, min(lines, _MOST_ROWS)), 1)
        self.x.device.launch("rounded_patches", grid, THREADS, params)

    def squares(self, address: int) -> None:
        """Write SUM64 of the squares of each 256 places of a tap: f64 [groups*taps, blocks]."""
        lines, blocks = self.groups * self.taps, -(-self.places // BLOCK)
        params = self.slots() + whole(self.taps, lines, self.places, blocks, address)
        self.x.device.launch("replay_tap_squares", over(32 * lines * blocks), THREADS, params)


def forward(attrs: Attrs, op: str, x: DeviceTensor, w: DeviceTensor, y: DeviceTensor) -> Window:
    """The window through which a convolution reads its input (2.6)."""
    stride, padding, dilation, groups = geometry(op, attrs)
    sides = [
        Side(x.shape[2 + a], 1, y.shape[2 + a], stride[a], w.shape[2 + a], dilation[a], padding[a])
        for a in range(2)
    ]
    return Window(x, groups, sides[0], sides[1])


def backward(attrs: Attrs, op: str, x: DeviceTensor, w: DeviceTensor, y: DeviceTensor) -> Window:
    """The window through which the input gradient reads the gradient: row (h + pad − i·dil)/stride
    (2.7)."""
    stride, padding, dilation, groups = geometry(op, attrs)
    sides = [
        Side(
            y.shape[2 + a], stride[a], x.shape[2 + a], 1, w.shape[2 + a], -dilation[a], -padding[a]
        )
        for a in range(2)
    ]
    return Window(y, groups, sides[0], sides[1])


def plain(x: DeviceTensor, groups: int) -> Window:
    """One tap: the elements themselves."""
    sides = [Side(x.shape[2 + a], 1, x.shape[2 + a], 1, 1, 1, 0) for a in range(2)]
    return Window(x, groups, sides[0], sides[1])
