"""The part of the check that numbers elements beyond 2^31: products with more of them than a number
of 32 bits counts, some rows of which the processor computes too."""

from __future__ import annotations

from typing import Any

import numpy as np
from check.where import Where
from device_calls import call, difference, there

from tallystick.devices.cpu import CPU
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.products.cuda.cublas import search
from tallystick.program.layout import new_tensor

_SIDE, _SMALL_SIDE = 46_400, 150  # 46,400^2 is more than 2^31
_TERMS = 9
_CONTRACTS = ("ordered/1", "rounded/1;b=29", "exact/1;b=22", "exact/1;b=8")


def large(where: Where) -> dict[str, Any]:
    """aten.mm of a square result, in every contract, and its sum."""
    side = _SMALL_SIDE if where.small else _SIDE
    device, rng = where.device, np.random.default_rng(31)
    search(device)
    a, b = (rng.standard_normal(s, np.float32) for s in ((side, _TERMS), (_TERMS, side)))
    rows = [0, 1, side // 2, side - 2, side - 1]
    inputs, out = (
        [there(device, x) for x in (a, b)],
        new_tensor(device, TensorType("f32", (side,) * 2)),
    )
    wrong = []
    for contract in _CONTRACTS:
        device.driver.fill(out.address, 0xFF, out.nbytes)
        device.kernels(find_contract(contract))["aten.mm"].run({}, inputs, [out])
        (expected,) = call(CPU, "aten.mm", {}, [a[rows], b], contract)
        for row, line in zip(rows, expected, strict=True):
            found = device.host(device.view(out, 4 * row * side, "f32", (side,), (4,)))
            if different := difference([line], [found]):
                wrong.append(f"{contract}, row {row}: {different}")
    return {"ok": not wrong, "elements": side * side, "wrong": wrong}
