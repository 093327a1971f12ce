"""The start-up probe of a GPU's bounded rounding logs: entries made and followed, as known ones.

Three elements: two sums halfway between neighbours of the grid, and one sum near no boundary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tallystick.contracts.replay.bounded.cuda_log import DeviceLog, LogOutcome
from tallystick.contracts.rounded.cuda import rounded_kernel
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.marks import Rounding

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda

_DOWN, _UP = 0, 1


def differing_logs(device: Cuda, bits: int) -> Iterator[str]:
    """ "a rounding log", if logs differ."""
    if logs_differ(device, bits):
        yield "a rounding log"


def logs_differ(device: Cuda, bits: int) -> bool:
    """True if the entries or the values that `device` makes on the grid of `bits` bits are not
    those of NUMERICS 14.5 to 14.8."""
    step = 2.0 ** (9 - bits)  # between neighbours above 1
    a = np.array([[1, step / 2], [1 + step, step / 2], [1, step / 4]], np.float32)
    ones = np.ones((2, 1), np.float32)
    left, right = (_there(device, array) for array in (a, ones))
    dims: Attrs = {"dim": (1,), "keepdim": True}
    calls: tuple[tuple[str, Attrs, list[DeviceTensor]], ...] = (
        ("aten.mm", {}, [left, right]),
        ("aten.sum.dim_IntList", dims, [left]),
    )
    log, out = DeviceLog(device, [3] * len(calls)), _there(device, np.zeros((3, 1), np.float32))

    def values() -> list[list[float]]:
        found = []
        for number, (op, attrs, inputs) in enumerate(calls):
            rounded_kernel[op](Rounding(bits, {0: log.marks(number)}), attrs, inputs, [out])
            found.append(device.host(out).reshape(-1).tolist())
        return found

    # Ties go to the even neighbour: down from the first boundary, up from the second.
    counts, recorded = [2] * len(calls), [_DOWN, 2 + _UP] * len(calls)
    log.record()
    well = values() == [[1, 1 + 2 * step, 1]] * len(calls)
    well &= [found.tolist() for found in log.recorded()] == [counts, recorded]
    # The other directions; and an entry to which no kernel leads, which changes nothing.
    followed = [_UP, 2 + _DOWN, 4 + _UP] * len(calls)
    log.follow(np.array([3] * len(calls)), np.array(followed), False)
    well &= values() == [[1 + step, 1 + step, 1]] * len(calls)
    well &= log.followed() == LogOutcome(4, 4, 4)
    well &= log.recorded()[1].tolist() == [_UP, 2 + _DOWN] * len(calls)
    return not well


def _there(device: Cuda, array: np.ndarray) -> DeviceTensor:
    tensor = device.contiguous("f32", array.shape)
    device.write(array, tensor)
    return tensor
