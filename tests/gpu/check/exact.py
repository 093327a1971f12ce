"""The part of the check that times `exact/1`: products beside float32, TF32 and bf16 of torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from check.where import Where
from device_calls import OPS, there

from tallystick.contracts.exact.cuda.layout import ProductSide, SegmentBlocks
from tallystick.contracts.exact.cuda.ways import DIGITS, FORCED, ProductShape, choose, ways
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import complete_attrs
from tallystick.numerics.types import TensorType
from tallystick.products.cuda.cublas import search
from tallystick.products.cuda.dots import Lines
from tallystick.program.layout import new_tensor
from tallystick_bench.device_gemm import SQUARES
from tallystick_bench.device_time import seconds, torch_on_gpu, torch_seconds

Figures = dict[str, Any]
SIDES = tuple(shape.m for shape in SQUARES)
_WIDTHS = (22, 15, 8)
_TARGET, _AIM = 1.5, 2.0  # times SGEMM's speed, b = 22 at the largest side
_EVERY_WAY = 4096  # the side at which every way is timed, for the table of exact_ways.py


def _seconds(where: Where, work: Callable[[], None]) -> float:
    """The median time; in small, of one run."""
    return seconds(where.device, work, 1, 0) if where.small else seconds(where.device, work)


def _beside(torch: Any, side: int) -> Figures:
    """torch.mm's seconds: float32 with TF32 off and on, bf16."""
    x, y = (torch.randn(side, side, device="cuda") for _ in range(2))
    found = {"torch_float32_seconds": torch_seconds(torch, partial(torch.mm, x, y))}
    torch.backends.cuda.matmul.allow_tf32 = True
    found["torch_tf32_seconds"] = torch_seconds(torch, partial(torch.mm, x, y))
    torch.backends.cuda.matmul.allow_tf32 = False

    def autocast() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            torch.mm(x, y)

    found["torch_bf16_autocast_seconds"] = torch_seconds(torch, autocast)
    return found


def _splitting(where: Where, x: DeviceTensor, width: int) -> float:
    """Seconds to find the magnitudes and lay the integers of both sides of x·x."""
    side, device = x.shape[0], where.device
    blocks, digits = SegmentBlocks(width, side), DIGITS[width]
    own = [(Lines(x.address, side, 1), False), (Lines(x.address, 1, side), True)]
    operands = [
        ProductSide("lines", of.slots(), of, side, side, blocks.length, lines_first=first)
        for of, first in own
    ]
    marks = device.allocate(4 * (operands[0].marks(blocks) + 1))
    laid = device.allocate(digits * side * blocks.pitch)

    def work() -> None:
        device.driver.fill(marks.address, 0, marks.nbytes)
        for one in operands:
            one.find_most(device, blocks, marks.address + 4, marks.address)
            one.lay(device, blocks, marks.address + 4, range(1), range(side), digits, laid.address)

    return _seconds(where, work)


def exact(where: Where) -> Figures:
    """Square products of exact/1, float32 in and out, splitting and totals included."""
    search(where.device)
    torch = None if where.small else torch_on_gpu()
    rng, rows, beside = np.random.default_rng(0), [], {}
    library = where.device.products
    for side in (48,) if where.small else SIDES:
        shape = TensorType("f32", (side, side))
        a, b = (
            there(where.device, rng.standard_normal((side, side), dtype=np.float32))
            for _ in range(2)
        )
        out = new_tensor(where.device, shape)
        attrs = complete_attrs(OPS["aten.mm"], {}, (shape,) * 2)
        if torch is not None:
            beside[side] = _beside(torch, side)
        for width in _WIDTHS:
            contract = f"exact/1;b={width}"
            kernel = where.device.kernels(find_contract(contract))["aten.mm"]
            blocks = SegmentBlocks(width, side)
            chosen = choose(
                width, ProductShape(side, side, blocks.pitch, blocks.count, 1),
                where.device.architecture, library is not None,
            )  # fmt: skip
            every = [w.name for w in ways(width)] if where.small or side == _EVERY_WAY else []
            for name in (chosen.name, *(w for w in every if w != chosen.name)):
                FORCED.way = name
                try:
                    taken = _seconds(where, partial(kernel.run, attrs, [a, b], [out]))
                finally:
                    FORCED.way = None
                row = {
                    "contract": contract, "side": side, "way": name,
                    "chosen": name == chosen.name, "seconds": taken,
                    "tflops": 2 * side**3 / taken / 1e12,
                }  # fmt: skip
                if side in beside:
                    row["times_float32"] = beside[side]["torch_float32_seconds"] / taken
                rows.append(row)
            rows[-1]["splitting_seconds"] = _splitting(where, a, width)
    reached = [
        row["times_float32"] for row in rows
        if row["contract"] == "exact/1;b=22" and row["side"] == SIDES[-1] and row["chosen"]
        and "times_float32" in row
    ]  # fmt: skip
    met = bool(reached) and reached[0] >= _TARGET
    # A speed is a figure, not a fault.
    return {
        "ok": True, "target": _TARGET, "aim": _AIM, "target_met": met,
        "library": None if library is None else library.name, "rows": rows, "beside": beside,
    }  # fmt: skip
