"""What the start-up probe of a GPU looks at under `exact/1` (contracts/gpu_probe.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tallystick.contracts.exact.contract import BLOCK_LENGTHS, Exact
from tallystick.contracts.exact.cuda.ways import FORCED, ways
from tallystick.contracts.gpu_probe import same

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda


def differing_ways(device: Cuda, contract: Exact) -> Iterator[str]:
    """The ways to multiply integers (NUMERICS 17.8) that give other bits: on several blocks of
    terms of very different sizes, with ties, the largest integers, and infinities."""
    rng, length = np.random.default_rng(17), BLOCK_LENGTHS[contract.width]
    shapes = ((70, 2 * length + 70), (2 * length + 70, 35))
    a, b = (
        (rng.standard_normal(s) * np.exp2(rng.integers(-20, 20, s))).astype(np.float32)
        for s in shapes
    )
    a[:2] = np.nextafter(np.float32(1), np.float32(0)) * np.array([[1], [-1]], np.float32)
    a[2] = np.float32(2.0**-contract.width) * rng.integers(-99, 99, shapes[0][1])
    a[2, 0], b[:, 0], a[3, 5], b[9, 3] = 0.75, a[0, 0], np.inf, -np.inf
    try:
        for way in ways(contract.width):
            FORCED.way = way.name
            if not same(device, contract, ("aten.mm", {}, [a, b])):
                yield f"aten.mm by {way.name}"
    finally:
        FORCED.way = None
