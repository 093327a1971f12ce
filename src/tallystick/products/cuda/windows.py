"""Windows of convolutions on a GPU (native/cuda/operands.hpp), and their patches."""

from __future__ import annotations

from dataclasses import astuple

from tallystick.devices.cuda.launch import THREADS, over, whole
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.products.cuda.folds import BLOCK
from tallystick.products.operators import Window

_MOST_ROWS = 65535  # along an axis of a grid


def slots(window: Window[DeviceTensor]) -> bytes:
    """The slots Window."""
    x, area = window.x, window.x.shape[2] * window.x.shape[3]
    strides = whole(x.address, x.shape[1] * area, window.channels * area, area)
    return strides + whole(*astuple(window.rows)) + whole(*astuple(window.columns))


def lay(window: Window[DeviceTensor], first: int, count: int, address: int) -> None:
    """Write the taps of `count` places: f32 [groups, taps, count]."""
    lines = window.groups * window.taps
    params = slots(window) + whole(window.groups, window.taps, first, count, address)
    grid = (over(count)[0], max(1, min(lines, _MOST_ROWS)), 1)
    window.x.device.launch("rounded_patches", grid, THREADS, params)


def tap_squares(window: Window[DeviceTensor], address: int) -> None:
    """Write SUM64 of the squares of each 256 places of a tap: f64 [groups*taps, blocks]."""
    lines, blocks = window.groups * window.taps, -(-window.places // BLOCK)
    params = slots(window) + whole(window.taps, lines, window.places, blocks, address)
    window.x.device.launch("replay_tap_squares", over(32 * lines * blocks), THREADS, params)
