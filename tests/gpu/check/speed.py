"""Parts of the check that take time: products and a whole step, beside torch's eager float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from check.replay import wrong_logs
from check.where import Where
from device_calls import call, compared
from dot_shapes import Call, convolution, numbers
from test_rounded_vectors import BOUNDED_LOGS

from tallystick.contracts.exact.cuda.ways import DIGITS, ways
from tallystick.contracts.exact.cuda.ways import FORCED as WAY
from tallystick.devices.cpu import CPU
from tallystick.products.cuda.tiles import FORCED, GATHERED, TILES
from tallystick_bench import device_gemm, device_step
from tallystick_bench.gemm import Shape
from tallystick_bench.step import MODELS, Model, gpt2

Figures = dict[str, Any]


def gemm(where: Where) -> Figures:
    """Square products of ordered/1, beside torch.mm with TF32 off (`bench gemm --device`)."""
    if where.small:
        rows = device_gemm.rows(where.device, (Shape(48, 48, 48),), filled=0)
    else:
        rows = device_gemm.rows(where.device, device_gemm.SQUARES)
    met = all(row["unit"] == "ratio" and row["value"] <= row["target"] for row in rows)
    # A speed is a figure, not a fault: a slow GPU computes the right bits.
    return {"ok": True, "target_met": met, "rows": rows}


def products(where: Where) -> Figures:
    """Every tile of the product kernels, whole and split, and convolutions, every way of `exact/1`,
    `rounded/1` and rounding logs, in small: what racecheck looks at."""
    rng = np.random.default_rng(0)
    todo: list[Call] = [("aten.mm", {}, [numbers(rng, 70, 300), numbers(rng, 300, 68)])]
    for _ in range(2):
        todo += convolution(rng)
    wrong = []
    for op, attrs, arrays in todo:
        wanted = call(CPU, op, attrs, arrays)
        for tile in TILES if op == "aten.mm" else GATHERED:
            for split in (False, True):
                FORCED.tile, FORCED.split = tile, split
                try:
                    different = compared(wanted, where.device, op, attrs, arrays)
                finally:
                    FORCED.tile, FORCED.split = None, None
                if different:
                    wrong.append(f"{op} {tile} split={split}: {different}")
        for width in DIGITS:
            contract = f"exact/1;b={width}"
            wanted = call(CPU, op, attrs, arrays, contract)
            for way in ways(width):
                WAY.way = way.name
                try:
                    different = compared(wanted, where.device, op, attrs, arrays, contract=contract)
                finally:
                    WAY.way = None
                if different:
                    wrong.append(f"{op} {contract} {way.name}: {different}")
        wanted = call(CPU, op, attrs, arrays, "rounded/1;b=20")
        different = compared(wanted, where.device, op, attrs, arrays, contract="rounded/1;b=20")
        if different:
            wrong.append(f"{op} rounded/1: {different}")
    followed, wrong_here = wrong_logs(where.device, BOUNDED_LOGS["cases"][::4])
    wrong += wrong_here
    return {
        "ok": not wrong, "tiles": len(TILES), "calls": len(todo), "logs": followed,
        "wrong": wrong[:20],
    }  # fmt: skip


def step(where: Where) -> Figures:
    """A captured step of GPT-2, its state on the device, beside torch's (`bench step --device`)."""
    small = Model("gpt2-tiny", gpt2(1, 2, 16, 256, 0.0))
    model = small if where.small else MODELS["gpt2-124m"]
    rows = device_step.measure(
        where.device,
        model.name,
        lambda: device_step.gpt2_sides(where.device, model),
        ("time",) if where.small else ("time", "memory"),
        compiled=False,  # the part has its time
        samples=1 if where.small else 15,
    )
    met = all(row["unit"] == "ratio" and row["value"] <= row["target"] for row in rows)
    return {"ok": True, "target_met": met, "rows": rows}
