"""Parts of the check that take time: products and a whole step, beside torch's eager float32."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

import numpy as np
from check.where import Where
from device_calls import OPS, call, compared, there
from dot_shapes import Call, convolution, numbers

from tallystick.kernels.context import ExecutionContext
from tallystick.kernels.cpu.device import CPU
from tallystick.kernels.cuda.exact_ways import DIGITS, ways
from tallystick.kernels.cuda.exact_ways import FORCED as WAY
from tallystick.kernels.cuda.tiles import FORCED, GATHERED, TILES
from tallystick.numerics.arguments import complete_attrs
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.program.executor import Executor
from tallystick.program.layout import new_tensor

Figures = dict[str, Any]
SIDES = (1024, 2048, 4096, 8192)
_TARGET = 1.15  # of cuBLAS's time
_STEP_TARGET = 1.1


def device_torch() -> Any:
    """torch, if it has a GPU here; TF32 off."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def torch_seconds(torch: Any, work: Any, samples: int = 9) -> float:
    for _ in range(3):
        work()
    taken = []
    for _ in range(samples):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        last.synchronize()
        taken.append(first.elapsed_time(last) / 1e3)
    return statistics.median(taken)


def gemm(where: Where) -> Figures:
    """Square products of ordered/1, beside torch.mm with TF32 off."""
    torch, rows = device_torch() if not where.small else None, []
    rng = np.random.default_rng(0)
    kernel = where.device.kernels(find_contract("ordered/1"))["aten.mm"]
    for side in (48,) if where.small else SIDES:
        a, b = (
            there(where.device, rng.standard_normal((side, side), dtype=np.float32))
            for _ in range(2)
        )
        out = new_tensor(where.device, TensorType("f32", (side, side)))
        attrs = complete_attrs(OPS["aten.mm"], {}, (TensorType("f32", (side, side)),) * 2)
        ours = where.seconds(partial(kernel.run, attrs, [a, b], [out]))
        row = {"side": side, "seconds": ours, "tflops": 2 * side**3 / ours / 1e12}
        if torch is not None:
            x, y = (torch.randn(side, side, device="cuda") for _ in range(2))
            theirs = torch_seconds(torch, partial(torch.mm, x, y))
            row |= {"torch_seconds": theirs, "ratio": ours / theirs}
        rows.append(row)
    met = all(row.get("ratio", 0.0) <= _TARGET for row in rows)
    # A speed is a figure, not a fault: a slow GPU computes the right bits.
    return {"ok": True, "target": _TARGET, "target_met": met and torch is not None, "rows": rows}


def products(where: Where) -> Figures:
    """Every tile of the product kernels, whole and split, and convolutions, and every way of
    `exact/1`, in small: what racecheck looks at."""
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
    return {"ok": not wrong, "tiles": len(TILES), "calls": len(todo), "wrong": wrong[:20]}


def step(where: Where) -> Figures:
    """A captured step of GPT-2, its state on the device, beside torch's eager step."""
    from tallystick.job.recipes.gpt2 import build
    from tallystick_bench.step import MODELS, _gpt2, tokens
    from tallystick_bench.step_side import TorchStep

    small = _gpt2(1, 2, 16, 256, 0.0)
    settings = small if where.small else MODELS["gpt2-124m"].settings
    built = build(settings, {}, 20, 0)
    executor = Executor(built.captured.program, ExecutionContext(device=where.device))
    state: dict[str, Any] = {}
    for name, array in built.initial_state.items():
        state[name] = there(where.device, array)
    batch = tokens(settings, settings.batch_size)
    count = iter(range(1 << 30))

    def ours() -> None:
        result = executor.run_step(state, {"tokens": batch}, {"lr": settings.lr}, (0, next(count)))
        assert result.loss is not None

    taken = []
    for turn in range(2 if where.small else 25):
        began = time.perf_counter()
        ours()
        if turn > 2 or where.small:
            taken.append(time.perf_counter() - began)
    found: Figures = {"ok": True, "seconds": statistics.median(taken), "target": _STEP_TARGET}
    torch = None if where.small else device_torch()
    if torch is None:
        return found
    free, total = torch.cuda.mem_get_info()
    found["bytes_in_use_ours"] = total - free
    theirs = TorchStep(settings, 1, built.initial_state)
    theirs.module.to("cuda")
    theirs.parameters = list(theirs.module.parameters())
    theirs.tokens = theirs.tokens.to("cuda")
    torch.cuda.reset_peak_memory_stats()
    for variant in theirs.VARIANTS:
        theirs.use(variant)
        found[f"torch_eager_{variant}_seconds"] = torch_seconds(torch, theirs, 15)
    fastest = min(v for k, v in found.items() if k.startswith("torch_eager_"))
    found |= {
        "torch_peak_bytes": torch.cuda.max_memory_reserved(),
        "ratio": found["seconds"] / fastest,
        "target_met": found["seconds"] / fastest <= _STEP_TARGET,
    }
    return found
