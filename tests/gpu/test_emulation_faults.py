"""Planted faults of device kernels: the emulation must see each of them."""

from __future__ import annotations

import numpy as np
import pytest
from device_calls import call
from dot_shapes import numbers
from emulated_gpu import emulated_gpu
from kernel_format import same_bits

from tallystick.kernels.cpu.device import CPU
from tallystick.kernels.cuda import tiles
from tallystick.kernels.cuda.tiles import TILES

SEEDS = range(5)


def wrong(defines: tuple[str, ...], tile: str) -> int:
    """Of several orders of threads, how many give other bits than the processor."""
    rng = np.random.default_rng(1)
    a, b = numbers(rng, 40, 300), numbers(rng, 300, 72)
    (expected,) = call(CPU, "aten.mm", {}, [a, b])
    found = 0
    tiles.FORCED.tile, tiles.FORCED.split = tile, False
    try:
        for seed in SEEDS:
            (got,) = call(emulated_gpu(seed, defines), "aten.mm", {}, [a, b])
            found += not same_bits(got, expected)
    finally:
        tiles.FORCED.tile, tiles.FORCED.split = None, None
    return found


@pytest.mark.parametrize("fault", ["TS_PLANT_MISSING_BARRIER", "TS_PLANT_RACE", "TS_PLANT_NO_WAIT"])
def test_a_race_in_a_product_is_seen(fault: str) -> None:
    for tile in TILES:
        assert wrong((fault,), tile) == len(SEEDS)


def test_one_wrong_bit_is_seen() -> None:
    for tile in TILES:
        assert wrong(("TALLYSTICK_FAULT",), tile) == len(SEEDS)


def test_without_a_fault_nothing_is_seen() -> None:
    for tile in TILES:
        assert wrong((), tile) == 0
