"""Digests of the elementary functions as a GPU computes them (NUMERICS 5.6), over up to all 2^32
arguments. docs/proofs/elementary.json has the digests of the proven functions."""

from __future__ import annotations

import numpy as np

from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.launch import THREADS, over, whole

ALL_ARGUMENTS = 1 << 32


def function_digest(device: Cuda, name: str, first: int = 0, count: int = ALL_ARGUMENTS) -> int:
    """The digest of function `name` over the arguments with the bits first to first + count − 1.

    It is the sum, modulo 2^64, of native/include/tallystick/input_digest.hpp: the digests of two
    ranges may be added.
    """
    if count == 0:
        return 0
    grid = over(count, THREADS)
    sums: np.ndarray = np.empty(grid[0], np.uint64)
    address = device.scratch(sums.nbytes)
    params = whole(first, count, address)
    device.launch(f"fingerprint_{name}", grid, THREADS, params)
    device.driver.to_host(address, sums)
    return int(sums.sum(dtype=np.uint64))
