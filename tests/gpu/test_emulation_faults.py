"""Planted faults of device kernels: the emulation must see each of them."""

from __future__ import annotations

import numpy as np
import pytest
from device_calls import call
from dot_shapes import numbers
from emulated_gpu import FAULTS, EmulatedDriver, EmulationError, emulated_gpu, planted
from kernel_format import same_bits

from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.launch import whole
from tallystick.products.cuda.tiles import FORCED, TILES

SEEDS = range(2)


def wrong(tile: str) -> int:
    """Of several orders of threads, how many give other bits than the processor."""
    rng = np.random.default_rng(1)
    a, b = numbers(rng, 40, 300), numbers(rng, 300, 72)
    (expected,) = call(CPU, "aten.mm", {}, [a, b])
    found = 0
    FORCED.tile, FORCED.split = tile, False
    try:
        for seed in SEEDS:
            (got,) = call(emulated_gpu(seed), "aten.mm", {}, [a, b])
            found += not same_bits(got, expected)
    finally:
        FORCED.tile, FORCED.split = None, None
    return found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("tile", TILES)
def test_a_fault_in_a_product_is_seen(tile: str, fault: str) -> None:
    with planted(fault):
        assert wrong(tile) == len(SEEDS)


@pytest.mark.parametrize("tile", TILES)
def test_without_a_fault_nothing_is_seen(tile: str) -> None:
    assert wrong(tile) == 0


@pytest.mark.parametrize(
    ("kernel", "threads", "why"),
    [
        ("faulty_barriers", 64, "wait for each other at line"),
        ("faulty_shuffles", 32, "wait for each other at line"),
        ("faulty_deserters", 64, "wait for threads that never arrive"),
    ],
)
def test_threads_that_do_not_meet_are_seen(kernel: str, threads: int, why: str) -> None:
    """Kernels of emulation/faulty.cu. A GPU may hang there, or go on with what it likes."""
    driver = EmulatedDriver()
    with pytest.raises(EmulationError, match=why):
        driver.launch(kernel, (1, 1, 1), threads, whole(driver.allocate(256)))
