"""Tallystick's benchmarks: the measurements of `tallystick bench NAME` (docs/adr/0008).

They stand outside the package that they measure, and import it as any user does. No module of
`tallystick` imports them: the command finds them by the name of this package.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

# As the command line does for its own process (tallystick/cli/__init__.py), before numpy is loaded.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Name -> the module whose `rows()` gives the rows; loaded when called, since each needs torch.
BENCHMARKS: dict[str, str] = {
    "gemm": "tallystick_bench.gemm",
    "step": "tallystick_bench.step",
    "dispute": "tallystick_bench.dispute",
    "ovt": "tallystick_bench.ovt.measure",
    "paper": "tallystick_bench.paper.measure",
}


def measure(name: str, threads: int | None, **options: Any) -> dict[str, Any]:
    """The object of `bench NAME --json`: `bench`, `machine` and `rows` of a name in BENCHMARKS.

    `threads` None leaves them as they are; `options` are the benchmark's own. Raises what its
    `rows()` raises.
    """
    rows = importlib.import_module(BENCHMARKS[name]).rows(threads, **options)
    from tallystick_bench.machine import machine

    return {"bench": name, "machine": machine(), "rows": rows}
