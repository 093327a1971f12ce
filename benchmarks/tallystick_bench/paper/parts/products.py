"""`bench paper`, products: square matrix products over torch.mm, by dimension (Verde's Figure 3).

Under `ordered/1` they are `bench gemm`'s products. Under the other contracts the product is a
program of one operator, so that it goes through the contract's own kernels.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick import _core
from tallystick.cli.output import note
from tallystick.devices.context import ExecutionContext
from tallystick.numerics.contracts import resolve_contract
from tallystick.program.capture import capture_forward
from tallystick.program.executor import Executor
from tallystick_bench import gemm
from tallystick_bench.machine import machine
from tallystick_bench.ovt.results.store import part_file
from tallystick_bench.paper.context import Context
from tallystick_bench.step_time import load

DIMENSIONS, QUICK_DIMENSIONS = (128, 256, 512, 1024, 2048, 4096), (16,)
CONTRACTS = {
    "rounded": "rounded/1",
    "exact-b22": "exact/1;b=22",
    "exact-b15": "exact/1;b=15",
    "exact-b8": "exact/1;b=8",
}
_LEAST_SECONDS, _PAUSE = 0.01, 0.02


def measure(out: Path, context: Context) -> None:
    """One entry a dimension and contract."""
    repeats = 3 if context.quick else 9
    about = {"machine": machine() | {"threads": context.threads}, "repeats": repeats}
    with part_file(out, "products", "square", about, "paper") as part:
        for n in QUICK_DIMENSIONS if context.quick else DIMENSIONS:
            note(f"products: {n}³")
            part.get(f"ordered.{n}", partial(_ordered, n, context.threads, repeats))
            for name, contract in CONTRACTS.items():
                run = partial(_under, n, contract, context.threads, repeats)
                part.get(f"{name}.{n}", run)


def _ordered(n: int, threads: int, repeats: int) -> dict[str, Any]:
    isa = str(_core.isa())
    row = gemm.rows(threads, repeats, (gemm.Shape(n, n, n),), (isa,))[0]
    return {"ratio": row["value"], "seconds": row["seconds"], "plain": row["anchor_seconds"],
            "load": load()}  # fmt: skip


class _Product(nn.Module):
    """x · w for a parameter w."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, n))

    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.w)


def _forward(module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    found: Tensor = module(batch["x"])
    return found


def _under(n: int, contract: str, threads: int, repeats: int) -> dict[str, Any]:
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    module, x = _Product(n), torch.randn(n, n)
    program = capture_forward(module, {"x": x}, _forward, resolve_contract(contract))
    executor = Executor(program, ExecutionContext(threads))
    weight = module.w.detach()
    state, batch, out = {"param.w": weight.numpy()}, {"x": x.numpy()}, torch.empty(n, n)
    calls: dict[str, Callable[[], object]] = {
        "plain": lambda: torch.mm(x, weight, out=out),
        "ours": lambda: executor.run_step(state, batch),
    }
    seconds: dict[str, list[float]] = {side: [] for side in calls}
    times = {}
    for side, call in calls.items():
        call()
        began = time.perf_counter()
        call()
        times[side] = max(1, int(_LEAST_SECONDS / max(time.perf_counter() - began, 1e-7)))
    for _ in range(repeats):
        for side, call in calls.items():
            time.sleep(_PAUSE)
            call()
            began = time.perf_counter()
            for _ in range(times[side]):
                call()
            seconds[side].append((time.perf_counter() - began) / times[side])
    ours, plain = (statistics.median(seconds[side]) for side in ("ours", "plain"))
    # What the product loses against the exact one, beside what float32's own loses.
    true = x.double().numpy() @ weight.double().numpy()
    found = executor.run_step(state, batch).outputs
    mine = np.asarray(next(v for k, v in found.items() if v is not None))
    scale = float(np.sqrt(np.mean(true**2)))
    return {
        "ratio": ours / plain,
        "seconds": ours,
        "plain": plain,
        "error": float(np.sqrt(np.mean((mine - true) ** 2))) / scale,
        "plain_error": float(np.sqrt(np.mean((out.double().numpy() - true) ** 2))) / scale,
        "load": load(),
    }
